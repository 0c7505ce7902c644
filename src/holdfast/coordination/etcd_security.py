"""Security of the connection to etcd: certificates, and no password without them."""

from __future__ import annotations

from holdfast.coordination.loopback import is_loopback
from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""The CA bundles of Debian, Fedora, SUSE and Alpine, for an OpenSSL that was built to look elsewhere."""

_READ = (
    "the certificates to trust (ca_cert, or SSL_CERT_FILE)",
    "the key (ssl_cert_key)",
    "the certificate (ssl_cert)",
)
"""The contents of the files for gRPC, in its order, and the setting that names each."""


class TlsFiles:
    """Paths of the certificates: the CA to trust, and our own. Without `ca_cert` the system's CAs are trusted.

    Raises:
        InputError: a file is missing, or cannot be used.
    """

    def __init__(self, ca_cert: str | None, cert: str | None, cert_key: str | None) -> None:
        if (cert is None) != (cert_key is None):
            raise InputError(
                "etcd: a certificate needs its key: give both ssl_cert and ssl_cert_key in --rdzv-conf, or neither"
            )
        from holdfast.coordination.tls import client_context

        ca_cert = ca_cert or system_authorities()
        self._paths = (ca_cert, cert_key, cert)
        self.read()
        client_context(ca_cert, cert, cert_key)  # gRPC would only repeat that it has no connection

    def read(self) -> list[bytes | None]:
        """The trusted certificates, our key and our certificate. Each connection reads them again: they get renewed."""
        return [None if path is None else _read(path, of) for path, of in zip(self._paths, _READ, strict=True)]


def system_authorities() -> str:
    """The file with the CAs that this machine trusts; SSL_CERT_FILE overrides it.

    gRPC would trust a list of its own.

    Raises:
        InputError: there is none.
    """
    import os
    import ssl

    named = os.environ.get("SSL_CERT_FILE")
    if named:
        return named  # even if it is missing: the user does not want other CAs instead
    for path in (ssl.get_default_verify_paths().cafile, *BUNDLES):
        if path and os.path.isfile(path):
            return path
    raise InputError(
        "etcd: this machine has no CA certificates; name etcd's with --rdzv-conf ca_cert=FILE, or install "
        "ca-certificates"
    )


def check_password(endpoints: Iterable[tuple[str, int]]) -> None:
    """Check that a password may be sent in plain text: only over loopback, where nobody else listens.

    Raises:
        InputError: others could read the password on its way.
    """
    for host, _ in endpoints:
        if not is_loopback(host):
            raise InputError(
                f"etcd: the password would be sent to {host} in plain text; use TLS: "
                "write https:// before the endpoint, or --rdzv-conf protocol=https"
            )


def _read(path: str, what: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InputError(f"etcd: {what} {path!r} cannot be read: {error.strerror}") from None
