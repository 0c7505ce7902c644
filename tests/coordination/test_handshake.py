"""Proofs."""

from __future__ import annotations

from holdfast.coordination.handshake import NONCE_BYTES, PROOF_BYTES, is_proved, make_nonce, prove
from holdfast.coordination.model import STORE_ID_BYTES


def test_a_proof_is_of_a_token_a_side_both_nonces_and_a_store():
    ours, theirs, store = make_nonce(), make_nonce(), bytes(STORE_ID_BYTES)
    mac = prove(b"token", "client", ours, theirs, store)
    assert len(mac) == PROOF_BYTES
    assert is_proved(mac, b"token", "client", ours, theirs, store)
    assert not is_proved(mac, b"other", "client", ours, theirs, store)
    assert not is_proved(mac, b"", "client", ours, theirs, store)
    assert not is_proved(mac, b"token", "server", ours, theirs, store)
    assert not is_proved(mac, b"token", "client", theirs, ours, store)
    assert not is_proved(mac, b"token", "client", make_nonce(), theirs, store)
    assert not is_proved(mac, b"token", "client", ours, make_nonce(), store)
    assert not is_proved(mac, b"token", "client", ours, theirs, b"\1" * STORE_ID_BYTES)


def test_no_token_is_a_token_like_any_other():
    challenge = make_nonce(), make_nonce(), bytes(STORE_ID_BYTES)
    assert is_proved(prove(b"", "server", *challenge), b"", "server", *challenge)


def test_a_nonce_is_used_once():
    nonces = {make_nonce() for _ in range(1000)}
    assert len(nonces) == 1000
    assert {len(nonce) for nonce in nonces} == {NONCE_BYTES}
