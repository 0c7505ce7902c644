"""The handshake: both sides prove that they know the job's token, without showing it.

```
server                                   client
  Greeting(version, nonce, store, has_tls)  ──►
                                  ◄──      TLS from here on, if the greeting says so
                                  ◄──      Proof(version, nonce, HMAC(token, "client", both nonces, store, certificate))
  Proved(HMAC(token, "server", both nonces, store, certificate))  ──►
```

`store` is the identity of the key space that is served. A client that reconnects compares it with the one it knew:
another agent may serve another store at the same address, without the client's data.

Each side checks the other's proof before it does anything else. A proof is valid for one connection, because both sides
contribute a nonce. It cannot be reflected, because it names its side.

With TLS, a proof covers the server's certificate. A man in the middle cannot show the same certificate, so every proof
that they forward is wrong: they can cut the connection, and no more. An eavesdropper sees no proof. An impostor of the
server receives one, and can try tokens on it offline, so a token should be long and random. An empty token is a token
like any other.

The greeting is in plain text and holds no secret. So a silent connection costs the server nothing but the connection,
and a client of another version gets a clear error. If somebody changes the greeting, the proofs fail.
"""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from holdfast.coordination.model import STORE_ID_BYTES

VERSION = 3
"""The version of the protocol. Increase it when a message changes its meaning."""

NONCE_BYTES = 32

PROOF_BYTES = 32

_KEY_PREFIX = b"holdfast token: "

_Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Mac = Annotated[bytes, Meta(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]


class Greeting(Struct, frozen=True, array_like=True, tag="holdfast"):
    """The server's first message. In other versions only its first fields are known to look like this."""

    version: int
    nonce: _Nonce
    store: Any = b""
    """The identity of the store. In other versions this field may hold anything."""
    has_tls: Any = False
    """Whether the server speaks TLS from now on. In other versions this field may hold anything."""

    def is_complete(self) -> bool:
        """Whether all fields are valid for this version."""
        is_store = isinstance(self.store, bytes) and len(self.store) == STORE_ID_BYTES
        return self.version == VERSION and is_store and isinstance(self.has_tls, bool)


class Proof(Struct, frozen=True, array_like=True, tag="proof"):
    version: int
    nonce: _Nonce
    mac: _Mac


class Proved(Struct, frozen=True, array_like=True, tag="proved"):
    mac: _Mac


def make_nonce() -> bytes:
    return os.urandom(NONCE_BYTES)


class Challenge(NamedTuple):
    """The data that a proof covers. `binding` is `tls_session`'s value for the server's certificate."""

    server_nonce: bytes
    client_nonce: bytes
    store: bytes
    binding: bytes


def prove(token: bytes, side: Literal["client", "server"], challenge: Challenge) -> bytes:
    # HMAC pads a short key with zeros, so two tokens could be equal: a digest has a fixed length. The prefix makes it
    # differ from the digest of the token alone, which people show each other to compare tokens.
    key = sha256(_KEY_PREFIX + token).digest()
    return hmac.digest(key, side.encode() + b"".join(challenge), "sha256")


def is_proved(mac: bytes, token: bytes, side: Literal["client", "server"], challenge: Challenge) -> bool:
    return hmac.compare_digest(mac, prove(token, side, challenge))
