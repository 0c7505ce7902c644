"""What keeps others out of the way to etcd: certificates, and no password without them."""

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
"""Where distributions keep the authorities that they trust, for an OpenSSL that was built to look elsewhere: of Debian,
Fedora, SUSE and Alpine.
"""

_READ = (
    "the certificates to trust (ca_cert, or SSL_CERT_FILE)",
    "the key (ssl_cert_key)",
    "the certificate (ssl_cert)",
)
"""What the files hold that gRPC is given, in its order, and the setting that names each."""


class TlsFiles:
    """Paths of the certificates: whom to trust, and who we are. Without `ca_cert` the system's authorities are trusted.

    Raises:
        InputError: a file is missing, or cannot be used.
    """

    def __init__(self, ca_cert: str | None, cert: str | None, cert_key: str | None) -> None:
        if (cert is None) != (cert_key is None):
            raise InputError(
                "etcd: a certificate and its key are given together: name both with ssl_cert and ssl_cert_key in "
                "--rdzv-conf, or none"
            )
        from holdfast.coordination.tls import client_context

        ca_cert = ca_cert or system_authorities()
        self._paths = (ca_cert, cert_key, cert)
        self.read()
        client_context(ca_cert, cert, cert_key)  # gRPC would only say that it has no connection, again and again

    def read(self) -> list[bytes | None]:
        """The trusted certificates, our key and our certificate. They get renewed: each connection reads them."""
        return [None if path is None else _read(path, of) for path, of in zip(self._paths, _READ, strict=True)]


def system_authorities() -> str:
    """The file of the authorities that this machine trusts; SSL_CERT_FILE names another.

    gRPC would trust a list of its own.

    Raises:
        InputError: there is none.
    """
    import os
    import ssl

    named = os.environ.get("SSL_CERT_FILE")
    if named:
        return named  # also if it is not there: whoever named it does not want others to be trusted in its place
    for path in (ssl.get_default_verify_paths().cafile, *BUNDLES):
        if path and os.path.isfile(path):
            return path
    raise InputError(
        "etcd: this machine has no file of authorities to trust; name etcd's with --rdzv-conf ca_cert=FILE, or install "
        "ca-certificates"
    )


def check_password(endpoints: Iterable[tuple[str, int]]) -> None:
    """See that a password can be sent in plain text: nobody listens on the machine's own loopback.

    Raises:
        InputError: others could read it on its way.
    """
    for host, _ in endpoints:
        if not is_loopback(host):
            raise InputError(
                f"etcd: the password would go to {host} in plain text, for everybody on the way to read; use TLS: "
                "write https:// before the endpoint, or --rdzv-conf protocol=https"
            )


def _read(path: str, what: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InputError(f"etcd: {what} {path!r} cannot be read: {error.strerror}") from None
