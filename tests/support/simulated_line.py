"""The line between an agent and the store: messages that take their time, come late, or not at all.

A line has one connection at a time. A request without an answer in time declares it dead: everything that was under
way on it is unavailable, though the store may have carried it out, or carry it out later. What is sent while the way
is blocked is held, like TCP does, and goes on when the way is free again; of a dead connection, some of it still may.

A connection leads to the store that answered when it was opened. The client remembers the first store's identity, and
says that the store is gone when another one answers at its address (the embedded flavour only).
"""

from __future__ import annotations

from holdfast.rendezvous.membership import Follow, Grant, KeepAlive, Transact

ANSWER_TIMEOUT_S = 3.0
REFOLLOW_S = 0.2


class Way:
    """What a host's network does now, in both directions. No new connection is ready before `connects_at`, and until
    `refuses_until` somebody on the way refuses every connection in the name of the store's host.
    """

    def __init__(self, latency_s):
        self.latency_s = latency_s
        self.is_up_blocked = False
        self.is_down_blocked = False
        self.connects_at = 0.0
        self.refuses_until = float("-inf")
        self.held = []

    def free(self):
        self.is_up_blocked = self.is_down_blocked = False
        held, self.held = self.held, []
        for go_on in held:
            go_on()


class Line:
    """Answers are `agent.hear(name, effect, value, sent_at)`.

    What happens in the agent's process goes through its `act`, or its `act_late` for timers, since it can stand still.
    """

    def __init__(self, world, way, agent):
        self._world = world
        self._clock = world.clock
        self._store = world.store
        self._port = None
        self.instance = None
        self._way = way
        self._agent = agent
        self._connection = 0
        self._is_open = False
        self._lanes = {}
        self._pending = {}
        self._requests = 0
        self._revision = 0
        self._prefix = None
        self._end_watch = None

    # What the agent asks for

    def ask(self, effect):
        if isinstance(effect, Follow):
            self._unwatch()
            self._prefix = effect.prefix
            self._pending = {n: asked for n, asked in self._pending.items() if not isinstance(asked[0], Follow)}
        self._request(effect)

    def close(self):
        """The agent's process ended; the kernel closes what it left open."""
        self._unwatch()
        self._is_open = False
        self._pending.clear()
        self._connection += 1

    def goodbye(self, lease):
        """Give the lease back, if the way is free; another store may have given the same number to somebody else."""
        self._world.messages += 1
        store = self._store
        if not self._way.is_up_blocked and not self._is_another(store):
            self._clock.after(self._way.latency_s(), store.arrive, lambda: store.revoke(lease))

    def reset(self):
        """The connection breaks, and both ends know."""
        if self._is_open:
            self._break("unavailable")

    # There and back

    def _request(self, effect, *, watch_from=None):
        if not self._is_open:
            self._connect()
        self._requests += 1
        number, connection, sent_at = self._requests, self._connection, self._clock.now
        self._pending[number] = (effect, sent_at)
        self._clock.after(ANSWER_TIMEOUT_S, self._agent.act_late, self._no_answer, number, connection)
        self._send(connection, _lane(effect), "up", self._serve, self._port, number, connection, effect, watch_from)

    def _connect(self):
        self._connection += 1
        self._is_open = True
        self._store = self._world.store
        self._port = (self._store, self._store.starts)
        handshake_s = self._way.latency_s() + self._way.latency_s()
        ready_at = max(self._clock.now + handshake_s, self._way.connects_at)
        self._lanes = dict.fromkeys(
            [(way, lane) for way in ("up", "down") for lane in ("kv", "lease", "watch")], ready_at
        )

    def _send(self, connection, lane, direction, act, *arguments):
        """One message; those of a lane overtake each other never. Over the embedded protocol all share one lane.

        The first argument of a message that goes up is the store that it goes to, and which start of it.
        """
        self._world.messages += 1
        way = self._way
        if way.is_up_blocked if direction == "up" else way.is_down_blocked:
            way.held.append(lambda: self._go_on(connection, lane, direction, act, arguments))
        else:
            self._carry(connection, lane, direction, act, arguments)

    def _go_on(self, connection, lane, direction, act, arguments):
        if self._is_current(connection):
            self._carry(connection, lane, direction, act, arguments)
        elif direction == "up" and self._world.chance(0.5):
            echo_s = self._world.random.uniform(0.0, self._world.echo_s)
            self._clock.after(echo_s, self._reach, connection, act, arguments)

    def _carry(self, connection, lane, direction, act, arguments):
        lane = (direction, "kv" if self._store.flavour == "embedded" else lane)
        at = self._clock.now + self._way.latency_s()
        if self._is_current(connection):
            at = self._lanes[lane] = max(at, self._lanes[lane])
        if direction == "up":
            self._clock.at(at, self._reach, connection, act, arguments)
        else:
            self._clock.at(at, self._agent.act, act, *arguments)

    def _reach(self, connection, act, arguments):
        if self._clock.now < self._way.refuses_until:
            if self._is_current(connection):
                self._agent.act(self._refused, connection)
            return
        store, start = arguments[0]
        knows_us = start == store.starts and not store.is_replaced
        if knows_us and not store.is_gone and not self._is_another(store):
            store.arrive(lambda: act(*arguments))
        elif self._is_current(connection):
            refused = self._refused if knows_us else self._reset
            if knows_us and not store.is_gone:
                refused = self._replaced
            self._clock.after(self._way.latency_s(), self._agent.act, refused, connection)

    def _is_another(self, store):
        """Whether the client finds out that this is not the store that it knows."""
        return (
            self._world.client_checks_identity
            and store.flavour == "embedded"
            and self.instance not in (None, store.instance)
        )

    # At the store

    def _serve(self, port, number, connection, effect, watch_from):
        store, _ = port
        if watch_from is not None:
            self._serve_watch(store, number, connection, effect, watch_from)
            return
        if isinstance(effect, Follow):
            name, value = "read", store.keyspace.get_prefix(effect.prefix)
        else:
            name, value = store.answer(effect)
        self._send(connection, _lane(effect), "down", self._answered, number, connection, name, value)

    def _serve_watch(self, store, number, connection, effect, watch_from):
        if not self._is_current(connection) or effect.prefix != self._prefix:
            return
        self._send(connection, "watch", "down", self._answered, number, connection, "watching", None)

        def deliver(changes):
            self._send(connection, "watch", "down", self._changed, connection, effect, changes)

        self._unwatch()
        self._end_watch = store.watch(effect.prefix, watch_from, deliver)
        if self._end_watch is None:
            self._send(connection, "watch", "down", self._compacted, connection, effect)

    # Back at the agent

    def _answered(self, number, connection, name, value):
        if not self._is_current(connection) or number not in self._pending:
            return
        effect, sent_at = self._pending.pop(number)
        if self.instance is None:
            self.instance = self._store.instance
        if self._has_lost_data(name):
            name = "refused"
        if name == "watching" or (name == "read" and effect.prefix != self._prefix):
            return
        if name == "read":
            self._request(effect, watch_from=value.revision + 1)
        self._agent.hear(name, effect, value, sent_at)

    def _has_lost_data(self, name):
        """Whether the client finds that the store's revision went back. Answers about leases carry no revision, but the
        client asks for it when a lease is lost.
        """
        if name not in ("read", "answered", "lease_lost") or not self._world.client_checks_revision:
            return False
        revision = self._store.keyspace.revision
        self._revision = max(self._revision, revision)
        return revision < self._revision

    def _changed(self, connection, effect, changes):
        if self._is_current(connection) and effect.prefix == self._prefix:
            self._agent.hear("changed", effect, changes, 0.0)

    def _compacted(self, connection, effect):
        if self._is_current(connection) and effect.prefix == self._prefix:
            self._request(effect)

    def _no_answer(self, number, connection):
        if self._is_current(connection) and number in self._pending:
            self._break("unavailable")

    def _reset(self, connection):
        if self._is_current(connection):
            self._break("unavailable")

    def _refused(self, connection):
        self._is_gone(connection, "gone")

    def _replaced(self, connection):
        self._is_gone(connection, "replaced")

    def _is_gone(self, connection, how):
        if self._is_current(connection):
            if self._agent.membership.view is None:
                self.instance = None  # it has seen nothing yet, and takes the store that comes
            self._break(how)

    def _break(self, name):
        self._unwatch()
        self._is_open = False
        self._connection += 1
        pending, self._pending = self._pending, {}
        for effect, _ in pending.values():
            if not isinstance(effect, Follow):
                self._agent.hear(name, effect, None, 0.0)
        if self._prefix is not None:
            self._agent.hear(name, Follow(self._prefix), None, 0.0)
            self._clock.after(REFOLLOW_S, self._agent.act_late, self._refollow, self._connection)

    def _refollow(self, connection):
        is_asked = any(isinstance(effect, Follow) for effect, _ in self._pending.values())
        if connection in (self._connection, self._connection - 1) and not is_asked and self._end_watch is None:
            self._request(Follow(self._prefix))

    def _is_current(self, connection):
        return self._is_open and connection == self._connection

    def _unwatch(self):
        if self._end_watch is not None:
            self._end_watch()
            self._end_watch = None


def _lane(effect):
    match effect:
        case Grant() | KeepAlive():
            return "lease"
        case Transact() | Follow():
            return "kv"
