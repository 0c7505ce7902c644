from __future__ import annotations

import pytest

from holdfast.cli import parse_args
from holdfast.cli.remarks import hints, shortcomings


def parsed(*options):
    return parse_args([*options, "script"])


def test_flags_for_gpus_say_when_they_cannot_act():
    (numa,) = shortcomings(parsed("--numa-binding", "socket"), gpus=0)
    assert numa.startswith("--numa-binding 'socket': this machine has no GPU")
    (virtual,) = shortcomings(parsed("--virtual-local-rank"), gpus=0)
    assert virtual == "--virtual-local-rank: this machine has no GPU; LOCAL_RANK is still 0 in every worker"


def test_with_gpus_they_can():
    assert shortcomings(parsed("--virtual-local-rank", "--numa-binding", "node"), gpus=2) == []


@pytest.mark.parametrize("options", [[], ["--nnodes", "2", "--node-rank", "1", "--master-port", "1"]])
def test_what_is_used_needs_no_remark(options):
    assert shortcomings(parsed(*options), gpus=0) == []
    assert hints(parsed(*options), sets_threads=False) == []


def test_threads_that_were_set_for_the_user():
    (hint,) = hints(parsed(), sets_threads=True)
    assert hint.startswith("OMP_NUM_THREADS is set to 1")


def test_what_another_backend_does_not_use():
    rank, port = hints(parsed("--rdzv-backend", "mine", "--node-rank", "1", "--master-port", "2"), sets_threads=False)
    assert rank.startswith("--node-rank 1 is not used")
    assert hints(parsed("--rdzv-backend", "c10d", "--node-rank", "1"), sets_threads=False) == []
    assert port.startswith("--master-port 2 is not used")
    assert hints(parsed("--standalone", "--rdzv-backend", "c10d", "--node-rank", "1"), sets_threads=False) == []
