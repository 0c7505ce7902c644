from __future__ import annotations

import ssl

import pytest

from holdfast.coordination import etcd_security
from holdfast.coordination.etcd_security import TlsFiles, check_password, system_authorities
from holdfast.errors.tree import InputError


@pytest.fixture
def files(tmp_path):
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    return [str(tmp_path / name) for name in ("ca", "cert", "key")]


def test_files_are_read_each_time(files, tmp_path):
    found = TlsFiles(*files)
    assert found.read() == [b"ca", b"key", b"cert"]
    (tmp_path / "cert").write_text("renewed")
    assert found.read() == [b"ca", b"key", b"renewed"]


def test_the_systems_authorities_are_trusted_unless_others_are_named(files, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", files[0])
    assert system_authorities() == files[0]
    assert TlsFiles(None, None, None).read() == [b"ca", None, None]


def test_authorities_are_found_where_distributions_keep_them(files, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    monkeypatch.setattr(etcd_security, "BUNDLES", ("/nowhere/bundle", files[1]))
    assert system_authorities() == files[1]
    monkeypatch.setattr(etcd_security, "BUNDLES", ())
    with pytest.raises(InputError, match=r"no file of authorities to trust; name etcd's with --rdzv-conf ca_cert=FILE"):
        TlsFiles(None, None, None)


def test_what_the_system_trusts_can_be_used():
    assert ssl.create_default_context(cafile=system_authorities()).get_ca_certs()


def test_a_key_belongs_to_a_certificate(files):
    for cert, key in ((files[1], None), (None, files[2])):
        with pytest.raises(InputError, match="given together"):
            TlsFiles(files[0], cert, key)


def test_a_password_stays_on_the_machine():
    check_password([("127.0.0.1", 1), ("::1", 1), ("localhost", 1)])
    with pytest.raises(InputError) as raised:
        check_password([("localhost", 1), ("etcd0", 2379)])
    assert str(raised.value) == (
        "etcd: the password would go to etcd0 in plain text, for everybody on the way to read; use TLS: write https:// "
        "before the endpoint, or --rdzv-conf protocol=https"
    )
