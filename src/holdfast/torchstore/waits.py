"""Who waits for which keys. No values, no sockets: a peer is where its replies are put."""

from __future__ import annotations

from holdfast.torchstore.memory import KEY_COST_BYTES, Memory
from holdfast.torchstore.wire import KEYS_MAX, STOP_WAITING, WAITS_MAX, LimitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.torchstore.wire import Pieces, Strings


class Peer:
    """Somebody who asks: the replies that it has not been sent yet, and its open waits.

    The replies are `out`, then those of `strings`, if there is such a long reply, and then `ends`: waits that ended
    while the long reply was sent. Who has a long reply asks nothing more until it is sent.
    """

    __slots__ = ("ends", "out", "strings", "waited_keys", "waits")

    def __init__(self) -> None:
        self.out: Pieces = []
        self.strings: Strings | None = None
        self.ends = 0
        self.waits: set[Wait] = set()
        self.waited_keys = 0

    def end_wait(self) -> None:
        """Tell it that a wait has ended, behind what it is told already."""
        if self.strings is None:
            self.out.append(STOP_WAITING)
        else:
            self.ends += 1

    def put_part(self) -> None:
        """Write the next part of its long reply to `out`, and with the last part what comes behind it."""
        if self.strings is not None and not self.strings.put_part(self.out):
            self.strings = None
            if self.ends:
                self.out.append(STOP_WAITING * self.ends)
                self.ends = 0


class Wait:
    """A peer waits until each of `missing` has been there."""

    __slots__ = ("count", "missing", "peer", "size")

    def __init__(self, peer: Peer, missing: Iterable[bytes]) -> None:
        self.peer = peer
        self.missing = set(missing)
        self.count = len(self.missing)
        self.size = sum(map(len, self.missing)) + self.count * KEY_COST_BYTES


class Waits:
    """All open waits. Who has been sent the end of one is in `woken`, for the caller to empty."""

    __slots__ = ("_by_key", "_memory", "woken")

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory()
        self._by_key: dict[bytes, dict[Wait, None]] = {}
        self.woken: list[Peer] = []

    def __len__(self) -> int:
        """How many keys are waited for."""
        return len(self._by_key)

    def open(self, peer: Peer, missing: Iterable[bytes]) -> None:
        if len(peer.waits) >= WAITS_MAX:
            raise LimitError(f"more than {WAITS_MAX} waits at once")
        wait = Wait(peer, missing)
        if peer.waited_keys + wait.count > KEYS_MAX:
            raise LimitError(f"waits for more than {KEYS_MAX} keys at once")
        self._memory.take(wait.size)
        peer.waits.add(wait)
        peer.waited_keys += wait.count
        for key in wait.missing:
            self._by_key.setdefault(key, {})[wait] = None

    def wake_all(self, key: bytes) -> None:
        """`key` is there for everybody who waits for it."""
        waiting = self._by_key.pop(key, None)
        if waiting:
            for wait in waiting:
                self._satisfy(wait, key)

    def wake_one(self, key: bytes) -> None:
        """`key` is there for one: those who wait are gone through, the longest first, until this ends a wait."""
        waiting = self._by_key.get(key, {})
        while waiting:
            wait = next(iter(waiting))
            del waiting[wait]
            if not waiting:
                del self._by_key[key]
            if self._satisfy(wait, key):
                return

    def forget(self, peer: Peer) -> None:
        """The peer waits no more."""
        for wait in peer.waits:
            self._memory.take(-wait.size)
            for key in wait.missing:
                waiting = self._by_key[key]
                del waiting[wait]
                if not waiting:
                    del self._by_key[key]
        peer.waits.clear()
        peer.waited_keys = 0

    def _satisfy(self, wait: Wait, key: bytes) -> bool:
        """Whether `key` was the last one that was missing."""
        wait.missing.remove(key)
        if wait.missing:
            return False
        self._memory.take(-wait.size)
        wait.peer.waits.remove(wait)
        wait.peer.waited_keys -= wait.count
        wait.peer.end_wait()
        self.woken.append(wait.peer)
        return True
