"""How a process reaches a store, as one plain record for each engine.

The records travel to other processes: the keeper of a killed agent opens the store with one (`last_will`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from holdfast.coordination.store import CoordinationStore


class EmbeddedAccess(Struct, frozen=True, tag="embedded"):
    """How to reach a store that an agent serves.

    `tls` are the files of the CA, the certificate and its key, if the user has some. `is_local` if the connection stays
    on this machine. `users` are those of `EmbeddedStore`.
    """

    host: str
    port: int
    token: bytes
    tls: tuple[str, str, str] | None = None
    is_local: bool = True
    users: frozenset[int] | None = frozenset()

    may_return = False

    def open(self, answer_timeout_s: float) -> CoordinationStore:
        from holdfast.coordination.client import EmbeddedStore
        from holdfast.coordination.tls import for_client

        tls = for_client(self.tls, is_local=self.is_local)
        return EmbeddedStore(
            self.host, self.port, token=self.token, tls=tls, users=self.users, answer_timeout_s=answer_timeout_s
        )


class EtcdAccess(Struct, frozen=True, tag="etcd"):
    """How to reach an etcd cluster: over TLS if certificates are named, otherwise in plain text."""

    endpoints: tuple[tuple[str, int], ...]
    user: str | None
    password: str | None
    ca_cert: str | None
    cert: str | None
    cert_key: str | None
    prefix: str

    may_return = True

    def open(self, answer_timeout_s: float) -> CoordinationStore:
        from holdfast.coordination.etcd import EtcdStore

        return EtcdStore(
            self.endpoints,
            user=self.user,
            password=self.password,
            ca_cert=self.ca_cert,
            cert=self.cert,
            cert_key=self.cert_key,
            prefix=self.prefix,
            answer_timeout_s=answer_timeout_s,
        )


Access: TypeAlias = EmbeddedAccess | EtcdAccess
"""The record of any engine. `may_return` says whether a store that is gone may come back."""
