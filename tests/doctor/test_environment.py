from __future__ import annotations

import pytest

from holdfast.doctor.environment import Facts, check, judge
from holdfast.doctor.finding import State

UP = ("lo", "eth0", "eth1", "ib0")


def facts(environ, workers=2, cpus=8, missing=()):
    return Facts(environ, UP, missing, workers, cpus)


@pytest.mark.parametrize(
    ("known", "name", "state", "words"),
    [
        (facts({"PET_NNODES": "2"}), "options", State.NOTE, "PET_NNODES"),
        (facts({"RANK": "0", "MASTER_ADDR": "node0"}), "worker", State.NOTE, "RANK, MASTER_ADDR"),
        (facts({"NCCL_DEBUG": "INFO"}), "libraries", State.NOTE, "NCCL_DEBUG=INFO"),
        (facts({"OMP_NUM_THREADS": "8"}), "threads", State.WARNING, "16 threads on 8 CPUs"),
        (facts({"CUDA_LAUNCH_BLOCKING": "1"}), "slow", State.WARNING, "CUDA_LAUNCH_BLOCKING=1"),
        (facts({"PYTHONPATH": "/srv/x"}, missing=("/srv/x",)), "pythonpath", State.NOTE, "/srv/x"),
        (facts({"LD_PRELOAD": "libx.so"}), "preload", State.NOTE, "libx.so"),
        (facts({"HTTPS_PROXY": "http://proxy:1"}), "proxy", State.NOTE, "HTTPS_PROXY"),
    ],
)
def test_what_is_said_of_a_variable(known, name, state, words):
    found = {finding.check: finding for finding in judge(known)}[name]
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


@pytest.mark.parametrize(
    ("name", "value", "is_good"),
    [
        ("GLOO_SOCKET_IFNAME", "eth0", True),
        ("GLOO_SOCKET_IFNAME", "eth0,ib0", True),
        ("GLOO_SOCKET_IFNAME", "eth", False),
        ("GLOO_SOCKET_IFNAME", "ens3", False),
        ("NCCL_SOCKET_IFNAME", "eth", True),
        ("NCCL_SOCKET_IFNAME", "=eth", False),
        ("NCCL_SOCKET_IFNAME", "=eth0", True),
        ("NCCL_SOCKET_IFNAME", "ens,ib", True),
        ("NCCL_SOCKET_IFNAME", "ens", False),
        ("NCCL_SOCKET_IFNAME", "^docker,lo", True),
        ("NCCL_SOCKET_IFNAME", "^=lo,eth0,eth1,ib0", False),
    ],
)
def test_an_interface_that_is_not_there_is_a_problem(name, value, is_good):
    problems = [finding for finding in judge(facts({name: value})) if finding.state is State.PROBLEM]
    assert bool(problems) is not is_good
    if problems:
        assert f"{name}={value}" in problems[0].what


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OMP_NUM_THREADS": "4"},
        {"OMP_NUM_THREADS": "many"},
        {"OMP_NUM_THREADS": "9" * 5_000},
        {"CUDA_LAUNCH_BLOCKING": "0", "TORCH_DISTRIBUTED_DEBUG": "OFF"},
        {"http_proxy": "", "HOLDFAST_TOKEN": "secret"},
    ],
)
def test_what_is_harmless_is_not_mentioned(environ):
    (found,) = judge(facts(environ))
    assert found.state is State.OK


def test_secrets_are_not_shown():
    told = judge(facts({"PET_RDZV_CONF": "token=hunter2", "http_proxy": "http://bob:hunter2@proxy"}))
    assert "hunter2" not in str(told)


def test_the_real_interfaces_and_paths_are_looked_at(make_context, tmp_path):
    environ = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": f"{tmp_path}:{tmp_path / 'none'}:"}
    found = {finding.check: finding for finding in check(make_context(environ=environ))}
    assert "interface" not in found
    assert found["pythonpath"].what.endswith(f"do not exist: {tmp_path / 'none'}")
