"""Kinds of weather for simulated worlds: which faults come, how many, and in what kind of world."""

from __future__ import annotations

FAULTS_S = 60.0
"""How long things go wrong."""

LOST_S = 150.0
"""How long after the faults it takes at most until all nodes run together, if records were lost. A node says again what
others wait for once a minute.
"""


class Mix:
    """A kind of weather. What is not a parameter here is a fault with its weight: a method of `Faults`.

    `late` is the share of hosts that start late, `etcd` that of worlds with etcd, `late_threads` that of hand-overs
    between an agent's threads that take seconds. With `patience`, nobody may leave while enough nodes are there.
    `settled_s` after the faults all nodes run together: more where records were lost, which nodes say again only now
    and then. `special` names a world with a plan of its own: a method of `Faults`
    that is called at its start.
    """

    def __init__(
        self,
        *,
        faults=(0, 0),
        faults_s=FAULTS_S,
        late=0.0,
        etcd=0.5,
        nodes=(1, 6),
        work_s=(5.0, 30.0),
        stop_s=5.0,
        latency_s=0.005,
        echo_s=2.0,
        late_threads=0.0,
        join_timeouts_s=(30.0, 600.0),
        settles=0.5,
        settled_s=60.0,
        patience=False,
        special="",
        **weights,
    ):
        self.faults = faults
        self.faults_s = faults_s
        self.late = late
        self.etcd = etcd
        self.nodes = nodes
        self.work_s = work_s
        self.stop_s = stop_s
        self.latency_s = latency_s
        self.echo_s = echo_s
        self.late_threads = late_threads
        self.join_timeouts_s = join_timeouts_s
        self.settles = settles
        self.settled_s = settled_s
        self.patience = patience
        self.special = special
        self.weights = weights


OLD_FAULTS = {
    "fail": 2,
    "crash": 2,
    "restart": 4,
    "cut_one": 2,
    "cut_up": 1,
    "cut_down": 1,
    "reset": 2,
    "pause": 2,
    "crash_leader": 1,
    "outage": 1,
    "pause_store": 1,
}

MIXES = {
    "calm": Mix(),
    "failures": Mix(faults=(1, 5), patience=True, fail=1),
    "losses": Mix(faults=(1, 5), late=0.2, crash=3, restart=2),
    "cuts": Mix(faults=(2, 8), cut_one=2, cut_up=1, cut_down=1, reset=2),
    "pauses": Mix(faults=(2, 8), pause=3, fail=1),
    "leaders": Mix(faults=(2, 8), work_s=(20.0, 60.0), crash_leader=2, cut_leader=1, pause_leader=1, restart=2),
    "scaling": Mix(faults=(3, 10), late=0.5, work_s=(20.0, 60.0), crash=2, restart=4),
    "outages": Mix(faults=(1, 3), etcd=1.0, outage=2, pause_store=2, cut_one=1, fail=1),
    "endings": Mix(faults=(2, 8), etcd=0.7, work_s=(0.1, 12.0), cut_one=2, outage=2, pause=1, crash=1, reset=1),
    "slow": Mix(faults=(1, 6), latency_s=0.8, cut_one=1, crash=1, fail=1, pause=1, restart=1),
    "echoes": Mix(faults=(10, 30), work_s=(20.0, 60.0), echo_s=10.0, cut_up=3, outage=1, fail=6, crash=1, restart=1),
    "leaving": Mix(faults=(2, 8), late=0.3, work_s=(20.0, 60.0), drain=4, restart=3, cut_one=1, pause=1, crash=1),
    "closing": Mix(faults=(2, 6), close=2, cut_one=2, pause=1, fail=1, crash=1, outage=1),
    "gone": Mix(faults=(1, 4), etcd=0.0, lose_store=1, cut_one=1, pause=1, fail=1),
    "replaced": Mix(
        faults=(2, 8), etcd=0.0, late=0.3, work_s=(20.0, 60.0), swap_store=3, cut_one=2, pause=2, crash=1, restart=3
    ),
    "wiped": Mix(
        settled_s=LOST_S,
        faults=(2, 8),
        etcd=1.0,
        late=0.3,
        work_s=(20.0, 60.0),
        wipe_store=2,
        cut_one=1,
        fail=1,
        crash=1,
        restart=3,
    ),
    "restored": Mix(
        settled_s=LOST_S,
        faults=(4, 12),
        etcd=1.0,
        late=0.3,
        work_s=(20.0, 60.0),
        back_up=3,
        rewind_store=2,
        fail=2,
        crash=1,
        restart=3,
    ),
    "strangers": Mix(
        settled_s=LOST_S,
        faults=(2, 8),
        late=0.3,
        work_s=(10.0, 60.0),
        delete_generation=2,
        delete_leader=2,
        delete_broken=2,
        delete_all=1,
        fail=2,
        crash=1,
        restart=2,
    ),
    "strangers_nodes": Mix(
        settled_s=LOST_S, faults=(2, 6), late=0.3, work_s=(10.0, 60.0), delete_node=3, fail=1, crash=1, restart=2
    ),
    "strangers_slowly": Mix(
        settled_s=LOST_S,
        faults=(1, 3),
        late=0.3,
        work_s=(10.0, 60.0),
        delete_one_by_one=3,
        delete_node=1,
        fail=1,
        restart=1,
    ),
    "strangers_ends": Mix(
        settled_s=LOST_S, faults=(5, 15), late=0.3, work_s=(0.1, 12.0), delete_done=2, delete_end=2, cut_one=1
    ),
    "resets": Mix(faults=(3, 12), work_s=(20.0, 60.0), latency_s=0.2, reset=1, reset_slowly=4, crash=1, restart=1),
    "lies": Mix(faults=(2, 10), etcd=0.0, work_s=(20.0, 60.0), refuse=6, fail=2, crash=1, restart=1),
    "deaths": Mix(faults=(2, 8), work_s=(20.0, 60.0), late=0.2, crash=3, host_dies=2, cut_one=1, restart=4),
    "late_threads": Mix(
        faults=(3, 12), work_s=(5.0, 40.0), late_threads=0.15, stall=4, fail=3, crash=1, cut_one=2, restart=2, drain=1
    ),
    "flapping": Mix(faults_s=180.0, nodes=(4, 4), work_s=(1e6, 1e6), stop_s=1.0, settles=1.0, special="flap"),
    "full": Mix(faults=(2, 6), etcd=1.0, late=0.2, work_s=(20.0, 60.0), fill_store=2, fail=2, crash=1, restart=2),
    "differing": Mix(faults=(1, 6), late=0.2, special="differ", fail=3, crash=1, restart=2),
    "leases": Mix(
        settled_s=LOST_S,
        faults=(2, 8),
        etcd=0.7,
        late=0.2,
        work_s=(20.0, 60.0),
        special="differ_in_leases",
        wipe_store=2,
        cut_one=2,
        crash=1,
    ),
    "slow_stops": Mix(
        faults=(1, 5), work_s=(20.0, 60.0), stop_s=15.0, join_timeouts_s=(5.0,), patience=True, fail=3, drain=1
    ),
    "given_ranks": Mix(
        faults=(2, 10),
        etcd=0.0,
        late=0.2,
        nodes=(2, 5),
        work_s=(10.0, 60.0),
        special="give_ranks",
        start_a_twin=4,
        fail=2,
        crash=2,
        restart=3,
        pause=2,
        cut_one=2,
        reset=1,
        drain=1,
    ),
    "bad_node": Mix(nodes=(2, 6), work_s=(20.0, 60.0), special="one_fails"),
    "felt_losses": Mix(faults=(1, 5), nodes=(2, 6), work_s=(20.0, 60.0), crash_felt=3, fail=1, restart=3),
    "storm": Mix(faults=(5, 25), late=0.3, **OLD_FAULTS),
    "tempest": Mix(
        settled_s=LOST_S,
        faults=(5, 25),
        late=0.3,
        late_threads=0.05,
        **OLD_FAULTS,
        stall=1,
        swap_store=1,
        wipe_store=1,
        back_up=1,
        rewind_store=1,
        delete_generation=1,
        delete_leader=1,
        delete_broken=1,
        delete_all=1,
        reset_slowly=2,
        host_dies=1,
        fill_store=1,
        crash_felt=1,
        drain=1,
    ),
}

NOT_YET = {}
"""Mixes in which the product is known to break a law, and how. Each entry goes when the product is repaired."""
