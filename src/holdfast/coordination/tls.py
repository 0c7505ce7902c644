"""TLS for both sides of the embedded engine: with the user's certificates, or with one that the store makes.

Without the user's files, the store makes a key and a certificate when it starts. Clients cannot know that certificate
beforehand, so they do not verify it. Instead, both sides prove that they know the job's token, and their proofs cover
the certificate. A man in the middle has another certificate, so the proofs that they forward are wrong. The key exists
only in the memory of the serving agent. Nobody can decrypt recorded traffic later, even with the token.
"""

from __future__ import annotations

import os
import re
import ssl
from typing import NamedTuple, TypeAlias

from holdfast.coordination.tls_session import binding_of
from holdfast.errors.tree import InputError

TlsFiles: TypeAlias = tuple[str, str, str]
"""The user's files: the CA, the certificate, and its key."""

_PLAIN = "CERTIFICATE"
_FIRST = re.compile(rf"^-----BEGIN ((?:X509 |TRUSTED )?{_PLAIN})-----.*?^-----END \1-----", re.MULTILINE | re.DOTALL)
"""Matches the first certificate of a file, in any form that OpenSSL accepts."""


class ServerTls(NamedTuple):
    """The TLS context of a server, and the binding of proofs to its certificate."""

    context: ssl.SSLContext
    binding: bytes


def for_server(files: TlsFiles | None, *, is_local: bool) -> ServerTls | None:
    """The TLS of a server: with the user's files if given, otherwise with a certificate that the server makes.

    None, which is plain text, if all clients are on the same machine.

    Raises:
        InputError: a file cannot be used.
    """
    if files is not None:
        ca, cert, key = files
        return server_tls(cert, key, ca)
    return None if is_local else own_server_tls()


def for_client(files: TlsFiles | None, *, is_local: bool) -> ssl.SSLContext | None:
    """The TLS of a client, by the same rules. With None the client may still use TLS: the server decides.

    Raises:
        InputError: a file cannot be used.
    """
    if files is not None:
        return client_context(*files)
    return None if is_local else own_client_context()


def own_server_tls() -> ServerTls:
    """TLS for a server with a new key and certificate. Its clients use an `own_client_context`."""
    from holdfast.coordination.own_certificate import make_certificate

    pem, der = make_certificate()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # clients never resume a session
    with open(os.memfd_create("holdfast-key"), "wb") as file:  # ssl reads keys from files only
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return ServerTls(context, binding_of(der))


def own_client_context() -> ssl.SSLContext:
    """The TLS context for a client of a server with `own_server_tls`. It verifies nothing: the proofs do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def server_tls(cert: str, key: str, ca: str | None = None) -> ServerTls:
    """TLS for a server that presents `cert`. With `ca`, clients must present a certificate that it has signed.

    Raises:
        InputError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _show(context, cert, key)
    if ca is not None:
        _trust(context, ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return ServerTls(context, binding_of(_first_certificate(cert)))


def _first_certificate(path: str) -> bytes:
    """The certificate that a server presents: the first one in the file. Other text may come before it."""
    with open(path, encoding="latin-1") as file:
        found = _FIRST.search(file.read())
    form = found[1] if found else "(unknown)"
    if found is None or form != _PLAIN:
        raise InputError(
            f"the TLS certificate (ssl_cert) {path!r} begins with BEGIN {form} instead of BEGIN {_PLAIN}; convert it: "
            "openssl x509 -in OLD -out NEW"
        )
    return ssl.PEM_cert_to_DER_cert(found[0])


def client_context(ca: str | None = None, cert: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """The TLS context for a client that trusts certificates signed by `ca`, or by the system's CAs if it is None.

    The server's certificate must name the host that the client connects to. The client presents `cert`, if given. `key`
    is its key, unless one file holds both.

    Raises:
        InputError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
    else:
        _trust(context, ca)
    if cert is not None:
        _show(context, cert, key)
    elif key is not None:
        raise InputError(f"the TLS key (ssl_cert_key) {key!r} has no certificate; name it with ssl_cert")
    return context


def _show(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except OSError as error:  # an SSLError is one
        its_key = "" if key is None else f" and its key (ssl_cert_key) {key!r}"
        raise InputError(f"the TLS certificate (ssl_cert) {cert!r}{its_key} cannot be used: {error}") from None


def _trust(context: ssl.SSLContext, ca: str) -> None:
    try:
        context.load_verify_locations(ca)
    except OSError as error:
        raise InputError(f"the TLS certificates to trust (ca_cert) {ca!r} cannot be used: {error}") from None


def _no_password() -> str:
    """Reject keys with a password: OpenSSL would ask for it at the terminal, where nobody answers."""
    raise ssl.SSLError("the key has a password; use a key without one")
