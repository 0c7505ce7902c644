"""The question to the doctor: a job with this many workers on this machine, and where its machines would meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.coordination.access import EtcdAccess
from holdfast.coordination.loopback import is_loopback
from holdfast.errors.tree import InputError
from holdfast.rendezvous.backends import BACKENDS, KEEP_ALIVE_ATTEMPTS
from holdfast.rendezvous.elastic_settings import ElasticSettings
from holdfast.rendezvous.etcd_settings import ETCD_PREFIX
from holdfast.rendezvous.known_settings import KEEP_ALIVE_INTERVAL_S
from holdfast.rendezvous.parameters import RendezvousParameters

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from holdfast.coordination.access import Access

NODES_MAX = 2
"""The settings are checked as for a job of this many machines. A single machine meets nobody."""


class Accelerators(NamedTuple):
    """The devices that ``--nproc-per-node`` would count here."""

    cpus: int
    gpus: int
    xpus: int

    @property
    def auto(self) -> int:
        return self.gpus or self.xpus or self.cpus


class TlsFiles(NamedTuple):
    """Paths of certificates: the CA to trust, our own certificate, and its key."""

    ca_cert: str | None
    cert: str | None
    cert_key: str | None

    def __bool__(self) -> bool:
        return any(self)

    def client_context(self) -> ssl.SSLContext | None:
        """The context of the client's side; None for plain text.

        Raises:
            InputError: a file cannot be used.
        """
        if not self:
            return None
        from holdfast.coordination.tls import client_context

        return client_context(*self)

    def whole(self) -> tuple[str, str, str] | None:
        """All three paths, if they are given."""
        ca_cert, cert, cert_key = self
        return (ca_cert, cert, cert_key) if ca_cert and cert and cert_key else None


class Meeting(NamedTuple):
    """Where the machines of a job would meet, as `holdfast run` would read the same options.

    Attributes:
        backend: the name of one of `BACKENDS`.
        endpoints: host and port of each endpoint; with c10d there is one.
        token: the secret that nodes prove to each other (c10d).
        tls: the certificates.
        user, password, prefix: for etcd.
        keep_alive_s: the interval of a node's keep-alives.
        ttl_s: how long a node may be silent.
        users: who else may take part on loopback; None for all (c10d).
        complaint: why a run would not start with these settings; "" if it would.
    """

    backend: str
    endpoints: tuple[tuple[str, int], ...]
    token: bytes = b""
    tls: TlsFiles = TlsFiles(None, None, None)
    user: str | None = None
    password: str | None = None
    prefix: str = ETCD_PREFIX
    keep_alive_s: float = KEEP_ALIVE_INTERVAL_S
    ttl_s: float = KEEP_ALIVE_INTERVAL_S * KEEP_ALIVE_ATTEMPTS
    is_host: bool | None = None
    users: frozenset[int] | None = frozenset()
    complaint: str = ""

    @property
    def is_local(self) -> bool:
        """Whether all nodes are on one machine, so that c10d needs no encryption."""
        return is_loopback(self.endpoints[0][0])

    def is_topic(self, topic: str) -> bool:
        """Whether this topic of the doctor looks at the store of this backend."""
        return topic in BACKENDS[self.backend].doctor_topics


class Context(NamedTuple):
    """The input of all checks."""

    accelerators: Accelerators
    environ: Mapping[str, str]
    workers: int = 1
    meeting: Meeting | None = None
    local_addr: str | None = None
    log_dir: str | None = None
    version: str = ""
    """The version of holdfast."""


def read_meeting(backend: str, endpoint: str, settings: Mapping[str, str], environ: Mapping[str, str]) -> Meeting:
    """The meeting that these options describe. If a run would refuse them, `complaint` says why.

    Raises:
        InputError: the endpoint is malformed, so there is nothing to check.
    """
    engine = BACKENDS[backend]
    try:
        endpoints = engine.endpoints(endpoint)
    except InputError as error:
        raise InputError(str(error).replace("--rdzv-endpoint", "--endpoint", 1)) from None
    params = RendezvousParameters(backend, endpoint, "doctor", 1, NODES_MAX, None, **settings)
    meeting = Meeting(backend, endpoints, ttl_s=KEEP_ALIVE_INTERVAL_S * engine.keep_alive_attempts)
    try:
        read = ElasticSettings(params, environ)
        meeting = meeting._replace(keep_alive_s=read.keep_alive_s, ttl_s=read.ttl_s, users=read.access.users)
        return _with_secrets(meeting, read.place.access(), params)
    except InputError as error:
        return meeting._replace(tls=_tls_files(params), complaint=str(error))


def _with_secrets(meeting: Meeting, access: Access, params: RendezvousParameters) -> Meeting:
    if isinstance(access, EtcdAccess):
        tls = TlsFiles(access.ca_cert, access.cert, access.cert_key)
        return meeting._replace(tls=tls, user=access.user, password=access.password, prefix=access.prefix)
    is_host = params.get_as_bool("is_host", None)
    return meeting._replace(token=access.token, tls=_tls_files(params), is_host=is_host)


def _tls_files(params: RendezvousParameters) -> TlsFiles:
    return TlsFiles(*(params.get(name) or None for name in ("ca_cert", "ssl_cert", "ssl_cert_key")))
