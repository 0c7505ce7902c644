"""A spare node of a real network: its template is warm before it is needed, and its workers come from it."""

from __future__ import annotations

import pytest
from job_nodes import Job
from meeting_places import Embedded
from network import Network
from warm_jobs import parent_of

LIBRARY = """
import os, socket
if "-c" in __import__("sys").orig_argv:
    fd = os.open({post!r}, os.O_WRONLY)
    os.write(fd, f"{{socket.gethostname()}} {{os.getpid()}}\\n".encode())
    os.close(fd)
"""


@pytest.mark.root
def test_when_a_node_is_lost_the_workers_of_the_spare_are_forked_from_a_template_that_was_there(tmp_path, post):
    (tmp_path / "library_of_test.py").write_text(LIBRARY.format(post=post.path))
    with Network(3) as network:
        place = Embedded(network, tmp_path)
        flags = ["--nnodes=2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=job", "--rdzv-backend=c10d"]
        flags += [f"--rdzv-endpoint={place.endpoint}", "--rdzv-conf=last_call_timeout=1"]
        flags += ["--warm-imports", "library_of_test"]
        environment = {**place.environment, "PYTHONPATH": str(tmp_path), "LOGLEVEL": "INFO"}
        with Job(network, tmp_path, flags, environment=environment) as job:
            first, lost = job.start(*network.nodes[:2])
            world = job.wait_for_world(4)
            (spare,) = job.start(network.nodes[2])
            templates = {host: int(pid) for host, pid in (line.split() for line in post.lines(3))}
            assert {parent_of(parent_of(life.pid)) for life in world} == {templates["node1"], templates["node2"]}
            assert parent_of(templates["node3"]) == spare.pid
            assert not job.alive(network.nodes[2]), "it is a spare"
            lost.kill()
            again = job.wait_for_world(4, after=world)
            workers = [life for life in again if life.node == "node3"]
            assert {parent_of(parent_of(life.pid)) for life in workers} == {templates["node3"]}
            assert len(workers) == 2
            assert {parent_of(parent_of(life.pid)) for life in again if life.node == "node1"} == {templates["node1"]}
            job.tell_all("exit 0")
            assert job.wait_for_exit(first, spare) == [0, 0]
            job.check()
