"""TLS for both sides of the embedded engine: with a certificate of the store's own, or with the user's files.

A store without the user's files makes a key and a certificate when it starts. No client can know that certificate
beforehand, so none verifies it. What counts is that both sides prove to know the job's token, and that their proofs
contain the certificate: somebody in between can only show a certificate of their own, and then no proof is right. The
key lives in the serving agent's memory and is gone with it. What somebody recorded cannot be read later, not even with
the token.
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
"""The first certificate of a file, in any of the forms that OpenSSL takes."""


class ServerTls(NamedTuple):
    """A context for the server's side, and what proofs are bound to: its certificate."""

    context: ssl.SSLContext
    binding: bytes


def for_server(files: TlsFiles | None, *, is_local: bool) -> ServerTls | None:
    """What a server uses: the user's files, if there are any, or a certificate of its own. Plain text is for those who
    all are on one machine.

    Raises:
        InputError: a file cannot be used.
    """
    if files is not None:
        ca, cert, key = files
        return server_tls(cert, key, ca)
    return None if is_local else own_server_tls()


def for_client(files: TlsFiles | None, *, is_local: bool) -> ssl.SSLContext | None:
    """What a client uses, likewise. None does not rule TLS out: the server decides.

    Raises:
        InputError: a file cannot be used.
    """
    if files is not None:
        return client_context(*files)
    return None if is_local else own_client_context()


def own_server_tls() -> ServerTls:
    """TLS for a server with a new key and a certificate for it, for clients with an `own_client_context`."""
    from holdfast.coordination.own_certificate import make_certificate

    pem, der = make_certificate()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody resumes a session
    with open(os.memfd_create("holdfast-key"), "wb") as file:  # ssl reads keys from files only
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return ServerTls(context, binding_of(der))


def own_client_context() -> ssl.SSLContext:
    """A context for a client of a server with `own_server_tls`: the proofs authenticate the server, see above."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def server_tls(cert: str, key: str, ca: str | None = None) -> ServerTls:
    """TLS for a server that shows `cert`. With `ca`, clients have to show a certificate of it, too.

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
    """The certificate that a server shows: the first one of the file, behind what people may have written above it."""
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
    """A context for a client that trusts servers with a certificate of `ca` (of the system's own without it).

    The server's certificate must name the host that the client connects to. `cert` is what the client shows itself, and
    `key` belongs to it, unless both are in one file.

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
    """A key that needs one would ask at the terminal, where nobody sits."""
    raise ssl.SSLError("the key has a password; use a key without one")
