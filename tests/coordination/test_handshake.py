"""Proofs."""

from __future__ import annotations

from holdfast.coordination.handshake import NONCE_BYTES, PROOF_BYTES, is_proved, make_nonce, prove


def test_a_proof_is_of_a_token_a_side_and_both_nonces():
    ours, theirs = make_nonce(), make_nonce()
    mac = prove(b"token", "client", ours, theirs)
    assert len(mac) == PROOF_BYTES
    assert is_proved(mac, b"token", "client", ours, theirs)
    assert not is_proved(mac, b"other", "client", ours, theirs)
    assert not is_proved(mac, b"", "client", ours, theirs)
    assert not is_proved(mac, b"token", "server", ours, theirs)
    assert not is_proved(mac, b"token", "client", theirs, ours)
    assert not is_proved(mac, b"token", "client", make_nonce(), theirs)
    assert not is_proved(mac, b"token", "client", ours, make_nonce())


def test_no_token_is_a_token_like_any_other():
    nonces = make_nonce(), make_nonce()
    assert is_proved(prove(b"", "server", *nonces), b"", "server", *nonces)


def test_a_nonce_is_used_once():
    nonces = {make_nonce() for _ in range(1000)}
    assert len(nonces) == 1000
    assert {len(nonce) for nonce in nonces} == {NONCE_BYTES}
