"""The key space as clients see it: requests in, answers out, and leases that expire on time.

The end of a connection does not affect leases. A connection can break while its client lives, and that client relies on
its whole lease: its workers run until the fence. A lease ends early only when it is revoked.
"""

from __future__ import annotations

from holdfast.coordination.errors import CompactedError, LeaseLostError, NoRoomError
from holdfast.coordination.model import check_key
from holdfast.coordination.shares import Shares
from holdfast.coordination.wire import (
    ANSWER_MAX_BYTES,
    Changed,
    Failed,
    Found,
    Get,
    GetPrefix,
    Grant,
    Granted,
    KeepAlive,
    Kept,
    Listed,
    Reason,
    Revoke,
    Revoked,
    Transact,
    Transacted,
    Unwatch,
    WatchFrom,
    Watching,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any, ClassVar, TypeAlias

    from holdfast.coordination.keyspace import KeySpace
    from holdfast.coordination.model import Changes, Snapshot
    from holdfast.coordination.wire import Answer, Request

    Tell: TypeAlias = Callable[[int, Changed], None]

LISTED_MAX = 16
"""The number of cached prefix listings: all nodes of a run ask for one or two prefixes."""

WATCHES_MAX = 1_000
"""The number of watches that a connection may have."""

WATCHES_IN_ALL_MAX = 50_000
"""The number of watches in all. Each takes 1 KiB plus its prefix. 10,000 nodes have one or two each. One source may
have as many as are still free, so at most half of them."""


class Session:
    """One client: its watches, the callback for changes, and the source that it counts for."""

    __slots__ = ("source", "tell", "watches")

    def __init__(self, tell: Tell, source: str = "") -> None:
        self.tell = tell
        self.source = source
        self.watches: dict[int, Callable[[], None]] = {}


class Service:
    """Carries out requests on a key space and ends expired leases. For one event loop, whose clock it uses."""

    def __init__(self, keyspace: KeySpace, loop: asyncio.AbstractEventLoop) -> None:
        self.keyspace = keyspace
        self._loop = loop
        self._expiry: asyncio.TimerHandle | None = None
        self._changed: Changed | None = None
        self._listed: dict[str, Listed] = {}
        self._listed_revision = 0
        self._watches = Shares(WATCHES_IN_ALL_MAX)
        self._set_alarm()

    def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def answer(self, session: Session, channel: int, request: Request) -> Answer | None:
        """Carry out a request. None if it has no answer."""
        try:
            return self._HANDLERS[type(request)](self, session, channel, request)
        except LeaseLostError as error:
            return Failed(Reason.LEASE_LOST, str(error))
        except CompactedError as error:
            return Failed(Reason.COMPACTED, str(error))
        except NoRoomError as error:
            return Failed(Reason.FULL, str(error))
        except ValueError as error:
            return Failed(Reason.VALUE, str(error))

    def leave(self, session: Session) -> None:
        """A client's connection has ended: end its watches. Its leases keep their remaining time."""
        for end in session.watches.values():
            end()
            self._watches.give_back(session.source)
        session.watches.clear()

    # Requests

    def _get(self, _session: Session, _channel: int, request: Get) -> Found:
        return Found(self.keyspace.get(request.key))

    def _get_prefix(self, _session: Session, _channel: int, request: GetPrefix) -> Listed:
        """A listing, as the same object until a change: clients that reconnect together ask for the same prefix."""
        self._forget_listed()
        _check_prefix(request.prefix)
        if len(self._listed) >= LISTED_MAX:
            self._listed.clear()
        listed = self._listed.get(request.prefix)
        if listed is None:
            snapshot = self.keyspace.get_prefix(request.prefix)
            if self.keyspace.entries_bytes > ANSWER_MAX_BYTES:  # rare; otherwise every listing is short enough
                _check_length(snapshot)
            listed = self._listed[request.prefix] = Listed(snapshot)
        return listed

    def _transact(self, _session: Session, _channel: int, request: Transact) -> Transacted:
        outcome = self.keyspace.transact(request.transaction)
        self._forget_listed()
        return Transacted(outcome)

    def _grant(self, session: Session, _channel: int, request: Grant) -> Granted:
        lease = self.keyspace.grant(request.ttl_s, self._loop.time(), session.source)
        self._set_alarm()
        return Granted(lease)

    def _keep_alive(self, _session: Session, _channel: int, request: KeepAlive) -> Kept:
        return Kept(self.keyspace.keep_alive(request.lease, self._loop.time()))

    def _revoke(self, _session: Session, _channel: int, request: Revoke) -> Revoked:
        self.keyspace.revoke(request.lease)
        self._forget_listed()
        return Revoked()

    def _watch(self, session: Session, channel: int, request: WatchFrom) -> Watching:
        _check_prefix(request.prefix)
        if channel in session.watches or len(session.watches) >= WATCHES_MAX:
            raise ValueError(f"more than {WATCHES_MAX} watches on one connection, or two of one number")
        if not self._watches.has_room(session.source):
            raise NoRoomError(
                f"too many watches: the store has {self._watches.taken}, {self._watches.of(session.source)} of them "
                f"from {session.source}; end some"
            )

        def deliver(changes: Changes) -> None:
            session.tell(channel, self._change(changes))

        session.watches[channel] = self.keyspace.watch(request.prefix, request.from_revision, deliver)
        self._watches.take(session.source)
        return Watching()

    def _unwatch(self, session: Session, channel: int, _request: Unwatch) -> None:
        end = session.watches.pop(channel, None)
        if end is not None:
            end()
            self._watches.give_back(session.source)

    _HANDLERS: ClassVar[dict[type[Request], Callable[[Service, Session, int, Any], Answer | None]]] = {
        Get: _get,
        GetPrefix: _get_prefix,
        Transact: _transact,
        Grant: _grant,
        KeepAlive: _keep_alive,
        Revoke: _revoke,
        WatchFrom: _watch,
        Unwatch: _unwatch,
    }

    def _forget_listed(self) -> None:
        """Clear cached listings after a change.

        Call it after every change, not only before the next listing: the cache may be all that still holds deleted
        entries.
        """
        if self._listed_revision != self.keyspace.revision:
            self._listed.clear()
            self._listed_revision = self.keyspace.revision

    def _change(self, changes: Changes) -> Changed:
        """The same object for all watches that get the same changes."""
        if self._changed is None or self._changed.changes is not changes:
            self._changed = Changed(changes)
        return self._changed

    # Leases

    def _set_alarm(self) -> None:
        """Set a timer for the next lease that expires."""
        next_expiry = self.keyspace.next_expiry()
        if next_expiry is None or (self._expiry is not None and self._expiry.when() <= next_expiry):
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_at(next_expiry, self._expire)

    def _expire(self) -> None:
        """End expired leases.

        Only the timer does this, not requests: after a pause, keep-alives are read before leases end.
        """
        self._expiry = None
        self.keyspace.expire(self._loop.time())
        self._forget_listed()
        self._set_alarm()


def _check_length(snapshot: Snapshot) -> None:
    """Refuse a listing that is too long, before encoding it takes as much memory again."""
    size = sum(len(entry.key) + len(entry.value) for entry in snapshot.entries)
    if size > ANSWER_MAX_BYTES:
        raise ValueError(f"an answer of {size} bytes, more than {ANSWER_MAX_BYTES}; ask for a longer prefix")


def _check_prefix(prefix: str) -> None:
    if prefix:  # the empty prefix means all keys
        check_key(prefix)
