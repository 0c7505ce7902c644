"""A key and a certificate for one store. The certificate itself is not verified: see `tls`."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

# Any time will do: clocks of different machines are never compared.
_FROM = datetime(2000, 1, 1, tzinfo=UTC)
_UNTIL = datetime(9999, 12, 31, tzinfo=UTC)


def make_certificate() -> tuple[bytes, bytes]:
    """A new key with its certificate, both in PEM format, and the certificate alone in DER format."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .sign(key, SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem + certificate.public_bytes(Encoding.PEM), certificate.public_bytes(Encoding.DER)
