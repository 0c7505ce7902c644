"""The last will of an agent: after it was killed and its workers are gone, its lease is revoked at once.

Nobody else may do that. Other nodes see at most that a connection broke, and a connection can break while workers run.
The keeper of the workers knows from the kernel that they are gone. It then becomes a process that runs `main`: an
ordinary client of the store, with the ordinary proofs. If that fails, the lease expires.

The will is an in-memory file that the agent and its keepers share. Workers have no access, because it holds the job's
token. The number of the lease is at its beginning, so that the agent can overwrite it when it registers again. The
numbers of leases are never reused, so a will cannot end the lease of a later agent.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import Decoder, Encoder

from holdfast.coordination.access import Access  # noqa: TC001 - msgspec reads the annotation of `Will`
from holdfast.coordination.errors import CoordinationError, StoreUnavailableError
from holdfast.coordination.model import NO_LEASE

if TYPE_CHECKING:
    from collections.abc import Sequence

RETRY_S = 0.1
"""The pause between attempts."""

WILL_MAX_BYTES = 1 << 20
"""The size limit of a will."""

_LEASE_BYTES = 8
_BOOT = (
    # The standard library comes first: the path may begin with the directory of a user's program.
    "import sys; sys.path += sys.argv[1].split(chr(0x3a)); from holdfast.coordination.last_will import main; main()"
)


class Will(Struct, frozen=True):
    """How to revoke a lease. After `limit_s` an attempt is useless: the lease has expired."""

    access: Access
    answer_timeout_s: float
    limit_s: float


def write(fd: int, will: Will) -> None:
    """Write a will without a lease."""
    os.pwrite(fd, NO_LEASE.to_bytes(_LEASE_BYTES, "little") + Encoder().encode(will), 0)


def name_lease(fd: int, lease: int) -> None:
    """Set the lease to revoke, instead of any earlier one."""
    os.pwrite(fd, lease.to_bytes(_LEASE_BYTES, "little"), 0)


def read(fd: int) -> tuple[int, Will]:
    data = os.pread(fd, WILL_MAX_BYTES, 0)
    return int.from_bytes(data[:_LEASE_BYTES], "little"), Decoder(Will).decode(data[_LEASE_BYTES:])


def command(path: Sequence[str]) -> list[str]:
    """The command that runs `main` with modules from these directories. Append the will's descriptor to it."""
    return [sys.executable, "-I", "-S", "-c", _BOOT, ":".join(entry for entry in path if os.path.isabs(entry))]


def main() -> None:
    """Revoke the lease, if there is one. Nobody is left to hear whether that worked."""
    lease, will = read(int(sys.argv[2]))
    # The keeper ignores all signals, and this process inherits that. SIGALRM ends it, whatever it waits for.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, will.limit_s)
    if lease != NO_LEASE:
        import asyncio

        asyncio.run(revoke(will, lease))


async def revoke(will: Will, lease: int) -> None:
    import asyncio

    try:
        async with will.access.open(will.answer_timeout_s) as store:
            while True:
                try:
                    await store.revoke(lease)
                except StoreUnavailableError as error:
                    if error.is_gone and not will.access.may_return:
                        return
                    await asyncio.sleep(RETRY_S)
                else:
                    return
    except CoordinationError:
        return  # the lease expires
