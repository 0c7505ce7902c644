"""The key space as clients see it: requests in, answers out, and leases that belong to whoever keeps them alive."""

from __future__ import annotations

from holdfast.coordination.errors import CompactedError, LeaseLostError
from holdfast.coordination.wire import (
    Changed,
    Failed,
    Found,
    Get,
    GetPrefix,
    Goodbye,
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
    from holdfast.coordination.model import Changes
    from holdfast.coordination.wire import Answer, Request

    Tell: TypeAlias = Callable[[int, Changed], None]

CLOSED_GRACE_S = 0.25
"""How long a lease lasts after its holder has closed the connection without a word: the holder's process ended. One
that lives and only lost the connection comes back within it."""

WATCHES_MAX = 1_000
"""How many watches a connection may have."""

LEASES_MAX = 1_000
"""How many leases a connection may keep alive."""


class Session:
    """One client: its leases, its watches, and how it is told of changes."""

    __slots__ = ("has_said_goodbye", "leases", "tell", "watches")

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self.leases: set[int] = set()
        self.watches: dict[int, Callable[[], None]] = {}
        self.has_said_goodbye = False


class Service:
    """Carries out requests on a key space and ends leases in time. For one event loop, whose clock it uses."""

    def __init__(self, keyspace: KeySpace, loop: asyncio.AbstractEventLoop) -> None:
        self.keyspace = keyspace
        self._loop = loop
        self._holders: dict[int, Session] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._changed: Changed | None = None
        self._listed: dict[str, Listed] = {}
        self._listed_revision = 0
        self._set_alarm()

    def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def answer(self, session: Session, channel: int, request: Request) -> Answer | None:
        """Carry out a request; None where there is nothing to say."""
        try:
            return self._HANDLERS[type(request)](self, session, channel, request)
        except LeaseLostError as error:
            return Failed(Reason.LEASE_LOST, str(error))
        except CompactedError as error:
            return Failed(Reason.COMPACTED, str(error))
        except ValueError as error:
            return Failed(Reason.VALUE, str(error))

    def leave(self, session: Session, *, has_ended: bool) -> None:
        """A client's connection is no more. `has_ended` if it was the client's side that closed it.

        A client that has not said goodbye has ended, and so do its leases, unless they are kept alive by another.
        """
        for end in session.watches.values():
            end()
        session.watches.clear()
        ends = self._loop.time() + CLOSED_GRACE_S
        for lease in session.leases:
            if self._holders.get(lease) is session:
                del self._holders[lease]
                if has_ended and not session.has_said_goodbye:
                    self.keyspace.shorten(lease, ends)
        session.leases.clear()
        self._set_alarm()

    # Requests

    def _get(self, _session: Session, _channel: int, request: Get) -> Found:
        return Found(self.keyspace.get(request.key))

    def _get_prefix(self, _session: Session, _channel: int, request: GetPrefix) -> Listed:
        """The same object while nothing changes: those who come back all at once all ask for the same."""
        if self._listed_revision != self.keyspace.revision:
            self._listed.clear()
            self._listed_revision = self.keyspace.revision
        listed = self._listed.get(request.prefix)
        if listed is None:
            listed = self._listed[request.prefix] = Listed(self.keyspace.get_prefix(request.prefix))
        return listed

    def _transact(self, _session: Session, _channel: int, request: Transact) -> Transacted:
        return Transacted(self.keyspace.transact(request.transaction))

    def _grant(self, session: Session, _channel: int, request: Grant) -> Granted:
        self._make_room(session)
        lease = self.keyspace.grant(request.ttl_s, self._loop.time())
        self._hold(session, lease.id)
        self._set_alarm()
        return Granted(lease)

    def _keep_alive(self, session: Session, _channel: int, request: KeepAlive) -> Kept:
        ttl_s = self.keyspace.keep_alive(request.lease, self._loop.time())
        if self._holders.get(request.lease) is not session:
            self._make_room(session)
            self._hold(session, request.lease)
        return Kept(ttl_s)

    def _revoke(self, _session: Session, _channel: int, request: Revoke) -> Revoked:
        self.keyspace.revoke(request.lease)
        holder = self._holders.pop(request.lease, None)
        if holder is not None:
            holder.leases.discard(request.lease)
        return Revoked()

    def _watch(self, session: Session, channel: int, request: WatchFrom) -> Watching:
        if channel in session.watches or len(session.watches) >= WATCHES_MAX:
            raise ValueError(f"more than {WATCHES_MAX} watches on one connection, or two of one number")

        def deliver(changes: Changes) -> None:
            session.tell(channel, self._change(changes))

        session.watches[channel] = self.keyspace.watch(request.prefix, request.from_revision, deliver)
        return Watching()

    def _unwatch(self, session: Session, channel: int, _request: Unwatch) -> None:
        end = session.watches.pop(channel, None)
        if end is not None:
            end()

    def _goodbye(self, session: Session, _channel: int, _request: Goodbye) -> None:
        session.has_said_goodbye = True

    _HANDLERS: ClassVar[dict[type[Request], Callable[[Service, Session, int, Any], Answer | None]]] = {
        Get: _get,
        GetPrefix: _get_prefix,
        Transact: _transact,
        Grant: _grant,
        KeepAlive: _keep_alive,
        Revoke: _revoke,
        WatchFrom: _watch,
        Unwatch: _unwatch,
        Goodbye: _goodbye,
    }

    def _change(self, changes: Changes) -> Changed:
        """The same object for all watches that get the same changes."""
        if self._changed is None or self._changed.changes is not changes:
            self._changed = Changed(changes)
        return self._changed

    # Leases

    def _hold(self, session: Session, lease: int) -> None:
        former = self._holders.get(lease)
        if former is not None:
            former.leases.discard(lease)
        self._holders[lease] = session
        session.leases.add(lease)

    def _make_room(self, session: Session) -> None:
        """Forget the session's leases that have run out, once there are many."""
        if len(session.leases) < LEASES_MAX:
            return
        for lease in [lease for lease in session.leases if not self.keyspace.has_lease(lease)]:
            session.leases.discard(lease)
            del self._holders[lease]
        if len(session.leases) >= LEASES_MAX:
            raise ValueError(f"more than {LEASES_MAX} leases on one connection")

    def _set_alarm(self) -> None:
        """Be woken when the next lease runs out."""
        next_expiry = self.keyspace.next_expiry()
        if next_expiry is None or (self._expiry is not None and self._expiry.when() <= next_expiry):
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_at(next_expiry, self._expire)

    def _expire(self) -> None:
        """Not upon requests: after a pause, those that keep a lease alive are read before it is ended."""
        self._expiry = None
        self.keyspace.expire(self._loop.time())
        self._set_alarm()
