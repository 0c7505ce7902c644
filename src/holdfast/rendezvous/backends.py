"""The built-in backends whose nodes meet in a store, as one table: `BACKENDS`, and `STATIC` beside it.

Every other module that treats one backend differently from another asks its entry. A new engine is one entry here, a
module of `coordination` that passes the conformance tests, and its record in `coordination.access`.

The start-up path of every job imports this module, so an entry imports its engine only when a job meets in it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from holdfast.coordination.local_users import Users
    from holdfast.rendezvous.meeting_place import MeetingPlace
    from holdfast.rendezvous.parameters import RendezvousParameters

    PlaceMaker: TypeAlias = Callable[[RendezvousParameters, float, Users, Mapping[str, str]], MeetingPlace]

EMBEDDED_PORT = 29400
"""The port of the embedded store if the endpoint has none; torchrun's default, too."""

MASTER_PORT = 29500
"""The port of the workers' store if the address of a static job has none; torchrun's default, too."""

ETCD_PORT = 2379
"""The port of etcd if the endpoint has none."""

KEEP_ALIVE_ATTEMPTS = 3
"""A node that is silent for interval times attempts is lost: 3 s."""

ETCD_KEEP_ALIVE_ATTEMPTS = 8
"""With etcd 8 s. When etcd loses its leader, no lease can be renewed until it has elected another one. That takes 1 to
2 s, and as long again if the votes are split; 2.4 s was the longest of 20 measured elections. The last renewal may be
1 s old by then, and workers are stopped at three quarters of the lease, so 6 s hold two elections and 1 s to spare."""

TLS_KEYS = frozenset(("ca_cert", "ssl_cert", "ssl_cert_key"))


class Backend:
    """One entry of the table.

    Attributes:
        name: the value of ``--rdzv-backend``.
        default_port: the port of an endpoint that has none.
        own_keys: the keys of ``--rdzv-conf`` beside those that all backends have.
        keep_alive_attempts: how many keep-alives make a lease, if the user does not say.
        make_place: checks the settings, and makes the place where nodes meet. Its arguments are the parameters, how
            long an answer may take in seconds, the users that may meet on loopback, and the environment.
        doctor_topics: the topics of ``holdfast doctor`` that look at the store itself.
        is_external: the store is not served by the job's agents. It outlives the job, and so do the job's records.
        has_members: an endpoint may name several members, with commas between, and a scheme before each.
        may_fork: an agent that uses the store may be forked.
        has_given_ranks: each node is told its rank, and all nodes are needed.
    """

    __slots__ = (
        "default_port",
        "doctor_topics",
        "has_given_ranks",
        "has_members",
        "is_external",
        "keep_alive_attempts",
        "make_place",
        "may_fork",
        "name",
        "own_keys",
    )

    def __init__(
        self,
        name: str,
        *,
        default_port: int,
        own_keys: frozenset[str],
        keep_alive_attempts: int,
        make_place: PlaceMaker,
        doctor_topics: frozenset[str],
        is_external: bool = False,
        has_members: bool = False,
        may_fork: bool = True,
        has_given_ranks: bool = False,
    ) -> None:
        self.name = name
        self.default_port = default_port
        self.own_keys = own_keys
        self.keep_alive_attempts = keep_alive_attempts
        self.make_place = make_place
        self.doctor_topics = doctor_topics
        self.is_external = is_external
        self.has_members = has_members
        self.may_fork = may_fork
        self.has_given_ranks = has_given_ranks

    def __repr__(self) -> str:
        return f"Backend({self.name!r})"

    def endpoints(self, text: str) -> tuple[tuple[str, int], ...]:
        """The host and port of every endpoint in ``--rdzv-endpoint``. Raises InputError if it is malformed."""
        from holdfast.rendezvous.static import parse_endpoint, refuse_password

        refuse_password(text)  # a password may contain a comma, so check before splitting
        parts = [part.strip().rpartition("://")[2] for part in text.split(",")] if self.has_members else [text]
        return tuple(parse_endpoint(part, self.default_port) for part in parts)

    def is_likely(self, endpoint: str) -> bool:
        """Whether an endpoint is written as only this backend's are: several members, a scheme, or its port."""
        return self.has_members and ("," in endpoint or "://" in endpoint or endpoint.endswith(f":{self.default_port}"))


def _embedded(
    params: RendezvousParameters, answer_timeout_s: float, users: Users, environ: Mapping[str, str]
) -> MeetingPlace:
    from holdfast.rendezvous.embedded_settings import embedded_place

    return embedded_place(params, answer_timeout_s, users, environ)


def _static(
    params: RendezvousParameters, answer_timeout_s: float, users: Users, environ: Mapping[str, str]
) -> MeetingPlace:
    from holdfast.rendezvous.static_settings import static_place

    return static_place(params, answer_timeout_s, users, environ)


def _etcd(params: RendezvousParameters, answer_timeout_s: float, _: Users, __: Mapping[str, str]) -> MeetingPlace:
    from holdfast.rendezvous.etcd_settings import etcd_access
    from holdfast.rendezvous.meeting_place import EtcdPlace

    return EtcdPlace(etcd_access(params), answer_timeout_s)


EMBEDDED = Backend(
    "c10d",
    default_port=EMBEDDED_PORT,
    own_keys=TLS_KEYS | {"is_host", "store_type", "token", "token_file"},
    keep_alive_attempts=KEEP_ALIVE_ATTEMPTS,
    make_place=_embedded,
    doctor_topics=frozenset(("endpoint",)),
)
ETCD = Backend(
    "etcd",
    default_port=ETCD_PORT,
    own_keys=TLS_KEYS | {"user", "password", "protocol", "etcd_prefix", "cacert", "cert", "key"},
    keep_alive_attempts=ETCD_KEEP_ALIVE_ATTEMPTS,
    make_place=_etcd,
    doctor_topics=frozenset(("etcd", "clock")),
    is_external=True,
    has_members=True,
    may_fork=False,  # gRPC's threads do not survive a fork
)

STATIC = Backend(
    "static",
    default_port=MASTER_PORT,
    own_keys=TLS_KEYS | {"token", "token_file", "meeting_port"},
    keep_alive_attempts=KEEP_ALIVE_ATTEMPTS,
    make_place=_static,
    doctor_topics=frozenset(),
    has_given_ranks=True,
)
"""Several nodes that were told their ranks and the master's address. They meet in an embedded store beside its port. A
single node meets nobody, and takes the settings of all backends. So this entry is not in the table."""

BACKENDS = {backend.name: backend for backend in (EMBEDDED, ETCD)}
"""The backends by name. The first one is the default where nothing says which one is meant."""


def backend_named(name: str) -> Backend:
    """The backend of a job whose nodes meet in a store."""
    return STATIC if name == STATIC.name else BACKENDS[name]
