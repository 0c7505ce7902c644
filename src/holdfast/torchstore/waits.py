"""Which clients wait for which keys. No values and no sockets: replies are appended to a `Peer`."""

from __future__ import annotations

from holdfast.torchstore.memory import KEY_COST_BYTES, Memory
from holdfast.torchstore.wire import KEYS_MAX, STOP_WAITING, WAITS_MAX, LimitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.torchstore.wire import Pieces, Strings


class Peer:
    """A client: the replies that were not sent to it yet, and its open waits.

    The replies are `out`, then `strings` if there is a long reply, and then `ends`: the number of waits that ended
    while the long reply was sent. No request of a client with a long reply is read until that reply is sent.
    """

    __slots__ = ("ends", "out", "strings", "waited_keys", "waits")

    def __init__(self) -> None:
        self.out: Pieces = []
        self.strings: Strings | None = None
        self.ends = 0
        self.waits: set[Wait] = set()
        self.waited_keys = 0

    def end_wait(self) -> None:
        """Reply that a wait has ended, after the replies that are already there."""
        if self.strings is None:
            self.out.append(STOP_WAITING)
        else:
            self.ends += 1

    def put_part(self) -> None:
        """Append the next part of the long reply to `out`, and after the last part the ends of waits."""
        if self.strings is not None and not self.strings.put_part(self.out):
            self.strings = None
            if self.ends:
                self.out.append(STOP_WAITING * self.ends)
                self.ends = 0


class Wait:
    """A client waits until each key of `missing` has existed."""

    __slots__ = ("count", "missing", "peer", "size")

    def __init__(self, peer: Peer, missing: Iterable[bytes]) -> None:
        self.peer = peer
        self.missing = set(missing)
        self.count = len(self.missing)
        self.size = sum(map(len, self.missing)) + self.count * KEY_COST_BYTES


class Waits:
    """All open waits. Clients whose wait ended are appended to `woken`, which the caller clears."""

    __slots__ = ("_by_key", "_memory", "woken")

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory()
        self._by_key: dict[bytes, dict[Wait, None]] = {}
        self.woken: list[Peer] = []

    def __len__(self) -> int:
        """The number of keys that clients wait for."""
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
        """Satisfy all waits for `key`."""
        waiting = self._by_key.pop(key, None)
        if waiting:
            for wait in waiting:
                self._satisfy(wait, key)

    def wake_one(self, key: bytes) -> None:
        """Satisfy waits for `key`, the oldest first, until one of them ends."""
        waiting = self._by_key.get(key, {})
        while waiting:
            wait = next(iter(waiting))
            del waiting[wait]
            if not waiting:
                del self._by_key[key]
            if self._satisfy(wait, key):
                return

    def forget(self, peer: Peer) -> None:
        """Cancel all waits of a client."""
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
        """Strike `key` off. Returns whether that ended the wait."""
        wait.missing.remove(key)
        if wait.missing:
            return False
        self._memory.take(-wait.size)
        wait.peer.waits.remove(wait)
        wait.peer.waited_keys -= wait.count
        wait.peer.end_wait()
        self.woken.append(wait.peer)
        return True
