"""The etcd settings in ``--rdzv-endpoint`` and ``--rdzv-conf``: addresses, TLS and authentication."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.coordination.access import EtcdAccess
from holdfast.coordination.etcd_security import check_password, system_authorities
from holdfast.errors.tree import InputError
from holdfast.rendezvous.backends import ETCD
from holdfast.rendezvous.static import refuse_password

if TYPE_CHECKING:
    from holdfast.rendezvous.parameters import RendezvousParameters

ETCD_PREFIX = "/holdfast/"
"""The prefix of all keys, if the user does not choose one."""

PLAIN, TLS = "http", "https"

FILE_KEYS = (("ca_cert", "cacert"), ("ssl_cert", "cert"), ("ssl_cert_key", "key"))
"""The settings that name the CA, our certificate and its key. Each has the spellings of torch's two etcd backends."""


def etcd_access(params: RendezvousParameters) -> EtcdAccess:
    """How to reach the cluster. Contradictory or unsafe settings are refused before anything is sent.

    Raises:
        InputError: settings contradict each other, or the password would be sent unencrypted.
    """
    if not params.endpoint:
        raise InputError(
            f"--rdzv-backend etcd: give --rdzv-endpoint HOST:PORT, such as etcd0:{ETCD.default_port}; separate several "
            "members with commas"
        )
    endpoint = str(params.endpoint)
    refuse_password(endpoint)  # first: other messages quote the endpoint
    schemes = {_scheme_of(part) for part in endpoint.split(",")} - {""}
    endpoints = ETCD.endpoints(endpoint)
    user, password = params.get("user") or None, params.get("password")
    if password and not user:
        raise InputError("--rdzv-conf password: no user given; add user=NAME")
    ca_cert, cert, key = (_file(params, *names) for names in FILE_KEYS)
    scheme = _scheme(params, schemes, has_files=bool(ca_cert or cert or key))
    if scheme == TLS:
        ca_cert = ca_cert or system_authorities()
    elif user is not None:
        check_password(endpoints)
    return EtcdAccess(
        endpoints, user, password or None, ca_cert, cert, key, str(params.get("etcd_prefix", ETCD_PREFIX))
    )


def _scheme_of(part: str) -> str:
    """The scheme of a cluster member's endpoint; "" for none."""
    scheme, separator, _ = part.strip().rpartition("://")
    if separator and scheme.lower() not in (PLAIN, TLS):
        raise InputError(f"--rdzv-endpoint {part!r}: write HOST:PORT, http://HOST:PORT or https://HOST:PORT")
    return scheme.lower()


def _file(params: RendezvousParameters, name: str, other_name: str) -> str | None:
    """The absolute path of a file: the process that carries out a last will has another working directory."""
    one, other = params.get(name), params.get(other_name)
    if one and other and one != other:
        raise InputError(f"--rdzv-conf {name}={one},{other_name}={other}: both mean the same; give one of them")
    path = one or other
    return os.path.abspath(path) if path else None


def _scheme(params: RendezvousParameters, schemes: set[str], *, has_files: bool) -> str:
    """The scheme, http or https. One setting that asks for TLS is enough; no setting may contradict it."""
    if len(schemes) > 1:
        raise InputError(
            f"--rdzv-endpoint {params.endpoint!r}: http:// and https:// for members of one cluster; write https:// for "
            "all of them if they speak TLS, and http:// for all if not"
        )
    said = schemes.pop() if schemes else ""
    protocol = str(params.get("protocol") or "").lower()
    if protocol not in ("", PLAIN, TLS):
        raise InputError(f"--rdzv-conf protocol={protocol}: write http or https")
    if said and protocol and said != protocol:
        raise InputError(f"--rdzv-conf protocol={protocol}: the endpoint begins with {said}://; write one of them only")
    said = said or protocol
    if said == PLAIN and has_files:
        where = "--rdzv-conf protocol=http" if protocol else f"--rdzv-endpoint {params.endpoint!r}"
        raise InputError(
            f"{where}: http is plain text, and there are certificates in --rdzv-conf; write https, or leave them out"
        )
    return said or (TLS if has_files else PLAIN)
