"""How both sides prove that they know the job's token, without showing it.

```
server                                   client
  Greeting(version, nonce, store)  ──►
                                  ◄──      Proof(version, nonce, HMAC(token, "client", both nonces, store))
  Proved(HMAC(token, "server", both nonces, store))  ──►
```

`store` is the identity of the key space that is served. A client that comes back compares it with the one that it knew:
another agent may serve another store at the same address, and what the client knows is not in there.

Each side checks the other's proof before it says or does anything else. A proof is good for one connection, since both
sides have put a nonce in, and it cannot be sent back as the other side's, since it says whose it is. The token protects
who may join; against those who can change packets on the way there is TLS. Whoever hears a proof can try tokens on it
for as long as they like, so a token should be long and random. An empty token is a token like any other.
"""

from __future__ import annotations

import hmac
import os
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from holdfast.coordination.model import STORE_ID_BYTES

VERSION = 2
"""The version of the protocol, counted up when a message changes its meaning."""

NONCE_BYTES = 32

PROOF_BYTES = 32

_Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Mac = Annotated[bytes, Meta(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]


class Greeting(Struct, frozen=True, array_like=True, tag="holdfast"):
    """The server's first message. Of other versions only the beginning is known to look like this."""

    version: int
    nonce: _Nonce
    store: Any = b""
    """The identity of the store. What stands here in other versions is not known."""

    def is_complete(self) -> bool:
        """Whether it is a greeting of this version, also behind the beginning."""
        return self.version == VERSION and isinstance(self.store, bytes) and len(self.store) == STORE_ID_BYTES


class Proof(Struct, frozen=True, array_like=True, tag="proof"):
    version: int
    nonce: _Nonce
    mac: _Mac


class Proved(Struct, frozen=True, array_like=True, tag="proved"):
    mac: _Mac


def make_nonce() -> bytes:
    return os.urandom(NONCE_BYTES)


def prove(
    token: bytes, side: Literal["client", "server"], server_nonce: bytes, client_nonce: bytes, store: bytes
) -> bytes:
    return hmac.digest(token, side.encode() + server_nonce + client_nonce + store, "sha256")


def is_proved(
    mac: bytes, token: bytes, side: Literal["client", "server"], server_nonce: bytes, client_nonce: bytes, store: bytes
) -> bool:
    return hmac.compare_digest(mac, prove(token, side, server_nonce, client_nonce, store))
