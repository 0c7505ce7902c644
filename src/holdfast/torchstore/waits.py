"""Who waits for which keys. No values, no sockets: a peer is where its replies are put."""

from __future__ import annotations

from holdfast.torchstore.wire import STOP_WAITING, WAITS_MAX, ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.torchstore.wire import Pieces


class Peer:
    """Somebody who asks: the replies that it has not been sent yet, in their order, and its open waits."""

    __slots__ = ("out", "waits")

    def __init__(self) -> None:
        self.out: Pieces = []
        self.waits: set[Wait] = set()


class Wait:
    """A peer waits until each of `missing` has been there."""

    __slots__ = ("missing", "peer")

    def __init__(self, peer: Peer, missing: Iterable[bytes]) -> None:
        self.peer = peer
        self.missing = set(missing)


class Waits:
    """All open waits. Who has been sent the end of one is in `woken`, for the caller to empty."""

    __slots__ = ("_by_key", "woken")

    def __init__(self) -> None:
        self._by_key: dict[bytes, dict[Wait, None]] = {}
        self.woken: list[Peer] = []

    def __len__(self) -> int:
        """How many keys are waited for."""
        return len(self._by_key)

    def open(self, peer: Peer, missing: Iterable[bytes]) -> None:
        if len(peer.waits) >= WAITS_MAX:
            raise ProtocolError(f"more than {WAITS_MAX} waits at once")
        wait = Wait(peer, missing)
        peer.waits.add(wait)
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
            for key in wait.missing:
                waiting = self._by_key[key]
                del waiting[wait]
                if not waiting:
                    del self._by_key[key]
        peer.waits.clear()

    def _satisfy(self, wait: Wait, key: bytes) -> bool:
        """Whether `key` was the last one that was missing."""
        wait.missing.remove(key)
        if wait.missing:
            return False
        wait.peer.waits.remove(wait)
        wait.peer.out.append(STOP_WAITING)
        self.woken.append(wait.peer)
        return True
