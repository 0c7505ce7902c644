"""How both sides prove that they know the job's token, without showing it.

```
server                                   client
  Greeting(version, nonce, store, has_tls)  ──►
                                  ◄──      TLS from here on, if the greeting says so
                                  ◄──      Proof(version, nonce, HMAC(token, "client", both nonces, store, certificate))
  Proved(HMAC(token, "server", both nonces, store, certificate))  ──►
```

`store` is the identity of the key space that is served. A client that comes back compares it with the one that it knew:
another agent may serve another store at the same address, and what the client knows is not in there.

Each side checks the other's proof before it says or does anything else. A proof is good for one connection, since both
sides have put a nonce in, and it cannot be sent back as the other side's, since it says whose it is.

With TLS, a proof contains the certificate that the server shows. Whoever stands in between cannot show the same one, so
no proof that they pass on is right: they can cut the line, and no more. Those who only listen hear no proof. Those who
take the server's place hear one, and can try tokens on it for as long as they like, so a token should be long and
random. An empty token is a token like any other.

The greeting is in plain text and holds no secret. So a silent connection costs the server nothing but the connection,
and a client of another version is told so. If somebody changes the greeting, the proofs fail.
"""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from holdfast.coordination.model import STORE_ID_BYTES

VERSION = 3
"""The version of the protocol, counted up when a message changes its meaning."""

NONCE_BYTES = 32

PROOF_BYTES = 32

_KEY_PREFIX = b"holdfast token: "

_Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Mac = Annotated[bytes, Meta(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]


class Greeting(Struct, frozen=True, array_like=True, tag="holdfast"):
    """The server's first message. Of other versions only the beginning is known to look like this."""

    version: int
    nonce: _Nonce
    store: Any = b""
    """The identity of the store. What stands here in other versions is not known ..."""
    has_tls: Any = False
    """... nor what stands here: whether the server speaks TLS from now on."""

    def is_complete(self) -> bool:
        """Whether it is a greeting of this version, also behind the beginning."""
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
    """What both sides prove the token on. `binding` is what `tls_session` says of the server's certificate."""

    server_nonce: bytes
    client_nonce: bytes
    store: bytes
    binding: bytes


def prove(token: bytes, side: Literal["client", "server"], challenge: Challenge) -> bytes:
    # HMAC fills a short key up with zeros, and so would take two tokens for the same one: a digest has one length. It
    # is not that of the token alone, which people show each other to compare tokens.
    key = sha256(_KEY_PREFIX + token).digest()
    return hmac.digest(key, side.encode() + b"".join(challenge), "sha256")


def is_proved(mac: bytes, token: bytes, side: Literal["client", "server"], challenge: Challenge) -> bool:
    return hmac.compare_digest(mac, prove(token, side, challenge))
