"""One end of a TLS connection without I/O: encrypted data goes in, plain text and data to send come out.

asyncio's own TLS holds 256 KiB for every connection from the moment it is accepted. This one holds only what OpenSSL
needs, and begins when there is something to read.
"""

from __future__ import annotations

import ssl
from hashlib import sha256

READ_MAX_BYTES = 256 << 10
"""How much is read from the session at once."""

NO_BINDING = b""
"""The binding of proofs on a connection without TLS."""


def binding_of(certificate: bytes) -> bytes:
    """The binding of proofs on a connection whose server has this certificate (in DER format)."""
    return sha256(certificate).digest()


class TlsSession:
    """A TLS session. Every method may raise `ssl.SSLError`; after that the connection is useless."""

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool = False, server_hostname: str | None = None
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        self.is_established = False

    def receive(self, data: bytes) -> bytes:
        """Decrypt data from the peer. Afterwards there may be something `to_send`."""
        self._incoming.write(data)
        try:
            if not self.is_established:
                self._object.do_handshake()
                self.is_established = True
            return self._read()
        except ssl.SSLWantReadError:
            return b""

    def _read(self) -> bytes:
        pieces = []
        try:
            while piece := self._object.read(READ_MAX_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)

    def seal(self, data: bytes | memoryview) -> bytes:
        """Encrypt `data` for sending, once the session is established."""
        self._object.write(data)
        return self._outgoing.read()

    def to_send(self) -> bytes:
        """Data that the session itself has to send."""
        return self._outgoing.read()

    def binding(self) -> bytes:
        """The binding of proofs, on the client's side."""
        certificate = self._object.getpeercert(binary_form=True)
        assert certificate is not None, "a server always shows one"
        return binding_of(certificate)
