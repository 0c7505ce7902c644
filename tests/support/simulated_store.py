"""The store of a simulated world: the real key space, on virtual time, that can stand still or be gone."""

from __future__ import annotations

from holdfast.coordination.errors import CompactedError, LeaseLostError
from holdfast.coordination.keyspace import KeySpace
from holdfast.rendezvous.membership import Grant, KeepAlive, Transact

CLOSED_GRACE_S = 0.25
"""How long a lease lasts once its holder's process was seen to end (the embedded flavour only)."""


class SimulatedStore:
    """Answers requests at the moment they arrive. `flavour` is embedded or etcd."""

    def __init__(self, clock, flavour):
        self.keyspace = KeySpace()
        self.flavour = flavour
        self.is_gone = False
        self.is_paused = False
        self.expiry_lag_s = lambda: 0.0
        self._clock = clock
        self._backlog = []
        self._alarm = float("inf")

    def arrive(self, act):
        """A request is here; one that finds the store standing still waits."""
        if self.is_paused:
            self._backlog.append(act)
        elif not self.is_gone:
            act()

    def answer(self, effect):
        """Carry out a request; returns the name of the answer and its arguments."""
        now = self._clock.now
        try:
            match effect:
                case Grant():
                    lease = self.keyspace.grant(effect.ttl_s, now)
                    self._set_alarm(now + lease.ttl_s)
                    return "granted", lease
                case KeepAlive():
                    return "kept", self.keyspace.keep_alive(effect.lease, now)
                case Transact():
                    return "answered", self.keyspace.transact(effect.transaction)
        except LeaseLostError:
            return "lease_lost", None
        raise AssertionError(effect)

    def watch(self, prefix, from_revision, deliver):
        try:
            return self.keyspace.watch(prefix, from_revision, deliver)
        except CompactedError:
            return None

    def holder_ended(self, lease):
        """The connection of a process that ended was closed by its kernel."""
        if self.flavour == "embedded" and not self.is_gone:
            self.keyspace.shorten(lease, self._clock.now + CLOSED_GRACE_S)
            self._set_alarm(self._clock.now + CLOSED_GRACE_S)

    def lease_holds(self, lease):
        held = self.keyspace._leases.get(lease)
        return held is not None and held.ends > self._clock.now

    def pause(self):
        self.is_paused = True

    def resume(self):
        """What has arrived in the meantime is read before leases are looked at."""
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for act in backlog:
            act()
        self._alarm = float("inf")
        self._set_alarm(self._clock.now)

    def _set_alarm(self, at):
        if at < self._alarm:
            self._alarm = at
            self._clock.at(at + self.expiry_lag_s(), self._expire, at)

    def _expire(self, at):
        if at != self._alarm or self.is_paused or self.is_gone:
            return
        self._alarm = float("inf")
        next_expiry = self.keyspace.expire(self._clock.now)
        if next_expiry is not None:
            self._set_alarm(next_expiry)
