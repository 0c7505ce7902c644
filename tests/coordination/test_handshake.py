"""Proofs."""

from __future__ import annotations

import hmac
from hashlib import sha256

import pytest

from holdfast.coordination.handshake import (
    NONCE_BYTES,
    PROOF_BYTES,
    VERSION,
    Challenge,
    Greeting,
    is_proved,
    make_nonce,
    prove,
)
from holdfast.coordination.model import STORE_ID_BYTES
from holdfast.coordination.tls_session import NO_BINDING, binding_of

CHALLENGE = Challenge(make_nonce(), make_nonce(), bytes(STORE_ID_BYTES), binding_of(b"certificate"))


def test_a_proof_is_of_a_token_and_a_side():
    mac = prove(b"token", "client", CHALLENGE)
    assert len(mac) == PROOF_BYTES
    assert is_proved(mac, b"token", "client", CHALLENGE)
    assert not is_proved(mac, b"other", "client", CHALLENGE)
    assert not is_proved(mac, b"", "client", CHALLENGE)
    assert not is_proved(mac, b"token", "server", CHALLENGE)


@pytest.mark.parametrize(
    "other",
    [
        CHALLENGE._replace(server_nonce=make_nonce()),
        CHALLENGE._replace(client_nonce=make_nonce()),
        CHALLENGE._replace(server_nonce=CHALLENGE.client_nonce, client_nonce=CHALLENGE.server_nonce),
        CHALLENGE._replace(store=b"\1" * STORE_ID_BYTES),
        CHALLENGE._replace(binding=binding_of(b"another")),
        CHALLENGE._replace(binding=NO_BINDING),
    ],
)
def test_a_proof_is_of_all_that_the_connection_is(other):
    assert not is_proved(prove(b"token", "client", CHALLENGE), b"token", "client", other)


def test_no_token_is_a_token_like_any_other():
    assert is_proved(prove(b"", "server", CHALLENGE), b"", "server", CHALLENGE)


@pytest.mark.parametrize(
    ("token", "other"),
    [(b"token", b"token\0"), (b"", b"\0"), (b"long" * 40, sha256(b"long" * 40).digest())],
)
def test_tokens_that_hmac_takes_for_the_same_key_are_two(token, other):
    assert not is_proved(prove(token, "client", CHALLENGE), other, "client", CHALLENGE)


def test_the_digest_of_a_token_which_people_compare_proves_nothing():
    shown = sha256(b"token").digest()
    message = b"client" + b"".join(CHALLENGE)
    assert not is_proved(hmac.digest(shown, message, "sha256"), b"token", "client", CHALLENGE)


@pytest.mark.parametrize(
    ("store", "has_tls"), [("text", False), (b"", False), (b"\0", True), (bytes(STORE_ID_BYTES), 1), (None, None)]
)
def test_a_greeting_with_something_else_in_it_is_not_complete(store, has_tls):
    assert Greeting(VERSION, make_nonce(), bytes(STORE_ID_BYTES), True).is_complete()
    assert not Greeting(VERSION, make_nonce(), store, has_tls).is_complete()


def test_a_nonce_is_used_once():
    nonces = {make_nonce() for _ in range(1000)}
    assert len(nonces) == 1000
    assert {len(nonce) for nonce in nonces} == {NONCE_BYTES}
