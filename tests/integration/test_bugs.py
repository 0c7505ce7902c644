"""What goes wrong in holdfast itself on one node reaches its agent, its workers and the other nodes."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.root, pytest.mark.parametrize("place_name", ["embedded"], indirect=True)]

BUG = """
from holdfast.rendezvous.membership import Membership

def fail(self, failure):
    raise RuntimeError("something that nobody thought of")

Membership.fail = fail
"""


def test_a_bug_ends_the_job_everywhere_with_a_clear_line(job, tmp_path):
    job = job("2:2")
    host, broken = job.nodes
    (tmp_path / "bug").mkdir()
    (tmp_path / "bug" / "sitecustomize.py").write_text(BUG)
    job.start(host)
    job.start(broken, environment={"PYTHONPATH": str(tmp_path / "bug")})
    job.wait_for_world(4)
    job.tell(job.alive(broken)[:1], "exit 3")
    assert job.wait_for_exit(job.agent(broken), job.agent(host)) == [1, 1]
    job.wait_for_end(job.lives)
    told = "bug in holdfast: RuntimeError: something that nobody thought of"
    assert told in job.agent(broken).stderr().splitlines()[-1]
    assert "in fail\n    raise RuntimeError" in job.agent(broken).stderr()
    assert f"RendezvousClosedError: {broken.hostname}: {told}" in job.agent(host).stderr()


def test_names_that_are_not_utf_8_cost_nothing(job, tmp_path):
    job = job("2:2", f"--log-dir={tmp_path}/logs\udcff", "--role=r\udcff", run_id="job\udcff")
    job.start(*job.nodes)
    first = job.wait_for_world(4)
    job.tell(job.alive(job.nodes[1])[:1], "raise no file /data/\udcff".encode("utf-8", "backslashreplace").decode())
    job.wait_for_world(4, after=first)
    job.tell_all("exit 0")
    assert job.wait_for_exit(*job.agents) == [0, 0]
    assert all("restart 1 of 3: rank " in agent.stderr() for agent in job.agents), job.describe()
