"""A node's last will, in a file that keepers inherit. What carries it out is tested in coordination."""

from __future__ import annotations

import os
import sys

import pytest

from holdfast.coordination import last_will
from holdfast.coordination.access import EmbeddedAccess
from holdfast.coordination.last_will import Will
from holdfast.processes.launch import LastWill
from holdfast.rendezvous.last_will import LeaseWill

ACCESS = EmbeddedAccess("node", 29400, b"secret")


def test_it_has_all_that_another_process_needs_and_names_no_lease_yet():
    made = LeaseWill(ACCESS, 1.0, 3.0)
    assert isinstance(made, LastWill)
    assert made.command == last_will.command(sys.path)
    assert b"secret" not in " ".join(made.command).encode()
    assert last_will.read(made.fd) == (0, Will(ACCESS, 1.0, 3.0))
    made.close()


def test_the_last_lease_that_it_names_counts_also_for_a_keeper_that_has_it_already():
    made = LeaseWill(ACCESS, 1.0, 3.0)
    of_keeper = os.dup(made.fd)
    for lease in (7, 9):
        made.name_lease(lease)
    assert last_will.read(of_keeper)[0] == 9
    made.close()
    assert last_will.read(of_keeper)[0] == 9
    os.close(of_keeper)
    with pytest.raises(OSError, match="Bad file descriptor"):
        made.close()
