"""The question to the doctor: a job with this many workers on this machine, and where its machines would meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.coordination.loopback import is_loopback
from holdfast.errors.tree import InputError
from holdfast.rendezvous.elastic_settings import EMBEDDED_PORT, ETCD_PORT, ETCD_PREFIX, ElasticSettings
from holdfast.rendezvous.known_settings import ETCD_KEEP_ALIVE_ATTEMPTS, KEEP_ALIVE_ATTEMPTS, KEEP_ALIVE_INTERVAL_S
from holdfast.rendezvous.parameters import RendezvousParameters
from holdfast.rendezvous.static import parse_endpoint, refuse_password

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

BACKENDS = ("c10d", "etcd")

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
        backend: one of `BACKENDS`.
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
    default_port = ETCD_PORT if backend == "etcd" else EMBEDDED_PORT
    parts = endpoint.split(",") if backend == "etcd" else [endpoint]
    bare = [part.strip().rpartition("://")[2] if backend == "etcd" else part for part in parts]
    try:
        refuse_password(endpoint)
        endpoints = tuple(parse_endpoint(part, default_port) for part in bare)
    except InputError as error:
        raise InputError(str(error).replace("--rdzv-endpoint", "--endpoint", 1)) from None
    params = RendezvousParameters(backend, endpoint, "doctor", 1, NODES_MAX, None, **settings)
    attempts = ETCD_KEEP_ALIVE_ATTEMPTS if backend == "etcd" else KEEP_ALIVE_ATTEMPTS
    meeting = Meeting(backend, endpoints, ttl_s=KEEP_ALIVE_INTERVAL_S * attempts)
    try:
        read = ElasticSettings(params, environ)
        meeting = meeting._replace(keep_alive_s=read.keep_alive_s, ttl_s=read.ttl_s, users=read.access.users)
        return _with_etcd(meeting, params) if backend == "etcd" else _with_store(meeting, params, environ)
    except InputError as error:
        return meeting._replace(tls=_tls_files(params), complaint=str(error))


def _with_etcd(meeting: Meeting, params: RendezvousParameters) -> Meeting:
    from holdfast.rendezvous.etcd_settings import etcd_access

    access = etcd_access(params)
    tls = TlsFiles(access.ca_cert, access.cert, access.cert_key)
    return meeting._replace(tls=tls, user=access.user, password=access.password, prefix=access.prefix)


def _with_store(meeting: Meeting, params: RendezvousParameters, environ: Mapping[str, str]) -> Meeting:
    from holdfast.coordination.token import find_token

    token = find_token(params.get("token"), params.get("token_file"), environ)
    return meeting._replace(token=token, tls=_tls_files(params), is_host=params.get_as_bool("is_host", None))


def _tls_files(params: RendezvousParameters) -> TlsFiles:
    return TlsFiles(*(params.get(name) or None for name in ("ca_cert", "ssl_cert", "ssl_cert_key")))
