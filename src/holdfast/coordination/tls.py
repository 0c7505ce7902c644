"""TLS contexts for both sides of the embedded engine, from files."""

from __future__ import annotations

import ssl

from holdfast.errors.tree import InputError


def server_context(cert: str, key: str, ca: str | None = None) -> ssl.SSLContext:
    """A context for a server that shows `cert`. With `ca`, clients have to show a certificate of it, too.

    Raises:
        InputError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _show(context, cert, key)
    if ca is not None:
        _trust(context, ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


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
        raise InputError(f"the TLS key {key!r} has no certificate: name the certificate, too")
    return context


def _show(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except OSError as error:  # an SSLError is one
        files = repr(cert) if key is None else f"{cert!r} and its key {key!r}"
        raise InputError(f"the TLS certificate {files} cannot be used: {error}") from None


def _trust(context: ssl.SSLContext, ca: str) -> None:
    try:
        context.load_verify_locations(ca)
    except OSError as error:
        raise InputError(f"the TLS certificates to trust, {ca!r}, cannot be used: {error}") from None


def _no_password() -> str:
    """A key that needs one would ask at the terminal, where nobody sits."""
    raise ssl.SSLError("the key has a password; use one without")
