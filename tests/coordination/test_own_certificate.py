"""The key and the certificate of one store."""

from __future__ import annotations

import ssl

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from holdfast.coordination.own_certificate import make_certificate


def public(key):
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def test_openssl_takes_the_key_and_the_certificate_together(tmp_path):
    pem, der = make_certificate()
    (tmp_path / "both.pem").write_bytes(pem)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "both.pem")
    certificate = x509.load_der_x509_certificate(der)
    assert x509.load_pem_x509_certificate(pem) == certificate
    assert public(load_pem_private_key(pem, None).public_key()) == public(certificate.public_key())


def test_it_is_valid_whatever_a_machines_clock_says():
    certificate = x509.load_der_x509_certificate(make_certificate()[1])
    assert certificate.not_valid_before_utc.year <= 2000
    assert certificate.not_valid_after_utc.year == 9999


def test_each_has_a_key_of_its_own():
    (first, one), (second, other) = make_certificate(), make_certificate()
    assert first != second
    assert public(x509.load_der_x509_certificate(one).public_key()) != public(
        x509.load_der_x509_certificate(other).public_key()
    )
