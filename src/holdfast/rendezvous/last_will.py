"""A node's last will, for its keepers: revoke its lease if the agent is killed, once its workers are gone."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from holdfast.coordination.last_will import Will, command, name_lease, write
from holdfast.processes.launch import LastWill

if TYPE_CHECKING:
    from holdfast.coordination.access import Access


class LeaseWill(LastWill):
    """A last will that revokes a lease. Any thread may name another lease, or close the will."""

    __slots__ = ()

    def __init__(self, access: Access, answer_timeout_s: float, ttl_s: float) -> None:
        super().__init__(command(sys.path), os.memfd_create("holdfast-last-will"))
        write(self.fd, Will(access, answer_timeout_s, ttl_s))

    def name_lease(self, lease: int) -> None:
        name_lease(self.fd, lease)

    def close(self) -> None:
        """Close this process's descriptor. Keepers that have the will keep it."""
        os.close(self.fd)
