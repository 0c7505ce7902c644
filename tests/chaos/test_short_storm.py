"""A short storm over the real thing. HOLDFAST_TEST_SEED=N is another one."""

from __future__ import annotations

import os

import pytest
from chaos.__main__ import main

SEED = 5011
"""A full disk, under which a worker is killed, a node leaves, and another is lost while a worker stands still."""

KINDS = (
    *("kill_worker", "stop_worker", "freeze_worker", "kill_agent", "stop_agent", "pause_agent", "remove_node"),
    *("cut_link", "flap_link", "slow_link", "shift_clock", "fill_disk", "kill_etcd_leader"),
)
"""What may happen in it. A kind that is added here makes another storm of the same seed."""


@pytest.mark.timeout(900)  # half a minute on a machine that has nothing else to do
@pytest.mark.root
@pytest.mark.torch
@pytest.mark.etcd
def test_a_short_storm_is_weathered(capsys):
    seed = os.environ.get("HOLDFAST_TEST_SEED") or str(SEED)
    code = main(["--seed", seed, "--faults", "5", "--only", ",".join(KINDS)])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err


def test_what_cannot_happen_is_one_line_and_exit_code_2(capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["--faults", "5"]) == 2
    assert capsys.readouterr().err == "chaos: network namespaces and disks of its own need root\n"


@pytest.mark.root
@pytest.mark.torch
@pytest.mark.etcd
def test_an_unknown_kind_is_one_line_and_exit_code_2(capsys):
    assert main(["--only", "kill_wroker"]) == 2
    assert "no fault kill_wroker here; there are: kill_worker" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--faults", "0"], ["--faults", "many"], ["--backend", "zookeeper"], ["--seed", "x"]]
)
def test_bad_input_is_exit_code_2(capsys, words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
