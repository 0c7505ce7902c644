"""The store of a simulated world: the real key space on virtual time. It can stand still, be full, be gone, be replaced
by another one, or lose its data.
"""

from __future__ import annotations

from random import Random

from holdfast.coordination.errors import CompactedError, LeaseLostError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import Put, Transaction
from holdfast.rendezvous.membership import Grant, KeepAlive, Transact


class SimulatedStore:
    """Answers requests at the moment they arrive. `flavour` is embedded or etcd; `instance` is its identity.

    `starts` counts how often it was started; no connection outlives that.
    `is_gone` once it serves nobody any more, and `is_replaced` if another store answers at its address.
    """

    def __init__(self, clock, flavour, instance=1):
        self.keyspace = KeySpace(random_bytes=Random(instance).randbytes)  # the same in every run of a seed
        self.flavour = flavour
        self.instance = instance
        self.starts = 1
        self.is_gone = False
        self.is_replaced = False
        self.is_paused = False
        self.is_full = False
        self.expiry_lag_s = lambda: 0.0
        self._clock = clock
        self._backlog = []
        self._alarm = float("inf")

    def arrive(self, act):
        """A request is here; one that finds the store standing still waits."""
        if self.is_gone:
            return
        if self.is_paused:
            self._backlog.append(act)
        else:
            act()

    def answer(self, effect):
        """Carry out a request; returns the name of the answer and its arguments."""
        now = self._clock.now
        if self.is_full and _needs_space(effect):
            return "refused", None
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

    def revoke(self, lease):
        self.keyspace.revoke(lease)

    def delete(self, operations):
        """A stranger with access deletes records."""
        return self.keyspace.transact(Transaction((), tuple(operations)))

    def lease_end(self, lease):
        """When a lease runs out, as far as the store knows now; None if there is no such lease."""
        held = self.keyspace._leases.get(lease)
        return None if held is None else held.ends

    def lease_holds(self, lease):
        ends = self.lease_end(lease)
        return ends is not None and ends > self._clock.now

    def pause(self):
        self.is_paused = True

    def resume(self):
        """What has arrived in the meantime is read before leases are looked at."""
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for act in backlog:
            act()
        self._look_at_leases()

    # Its data

    def backup(self):
        space = self.keyspace
        leases = {number: lease.ttl_s for number, lease in space._leases.items()}
        return space.revision, dict(space._entries), leases

    def restore(self, backup=None):
        """Have the data of that backup, or none: revisions go back. As in etcd, the leases in it last their full time
        again, and no lease has the number of an earlier one.
        """
        self.starts += 1
        space = self.keyspace = KeySpace(random_bytes=self.keyspace._random_bytes)
        if backup is None:
            return
        space.revision, entries, leases = backup
        space._entries = dict(entries)
        space._keys = sorted(entries)
        for number, ttl_s in leases.items():
            lease = space.grant(ttl_s, self._clock.now)
            space._leases[number] = space._leases.pop(lease.id)
            space._look_at(space._leases[number].ends, number)
        for key, entry in entries.items():
            if entry.lease:
                space._leases[entry.lease].keys.add(key)
        self._look_at_leases()

    # Its leases

    def _look_at_leases(self):
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


def _needs_space(effect):
    """What etcd refuses once it is out of space. Leases can still be renewed and given back, and keys deleted."""
    if isinstance(effect, Grant):
        return True
    if not isinstance(effect, Transact):
        return False
    transaction = effect.transaction
    return any(isinstance(operation, Put) for operation in (*transaction.then, *transaction.otherwise))
