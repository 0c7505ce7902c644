from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest
from etcd_cluster import Certificates

from holdfast.coordination import etcd_security
from holdfast.coordination.etcd_security import TlsFiles, check_password, system_authorities
from holdfast.errors.tree import InputError


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"), ["127.0.0.1"])


@pytest.fixture
def files(certificates):
    return [certificates.ca_cert, certificates.client_cert, certificates.client_key]


def contents(*paths):
    return [Path(path).read_bytes() for path in paths]


def test_files_are_read_each_time(files, tmp_path):
    ca_cert, cert, key = files
    mine = shutil.copy(cert, tmp_path)
    found = TlsFiles(ca_cert, mine, key)
    assert found.read() == contents(ca_cert, key, cert)
    Path(mine).write_text("renewed")
    assert found.read() == [*contents(ca_cert, key), b"renewed"]


def test_files_that_cannot_be_used_are_named(files, certificates, tmp_path):
    ca_cert, cert, key = files
    (tmp_path / "bad.pem").write_text("no certificate")
    bad = str(tmp_path / "bad.pem")
    for given in ((bad, None, None), (ca_cert, bad, key), (ca_cert, cert, bad)):
        with pytest.raises(InputError, match=f"{bad}.* cannot be used"):
            TlsFiles(*given)
    with pytest.raises(InputError, match=r"\(ssl_cert\) .*client\.pem' and its key \(ssl_cert_key\) .* cannot be used"):
        TlsFiles(ca_cert, cert, certificates.server_key)


def test_the_systems_authorities_are_trusted_unless_others_are_named(files, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", files[0])
    assert system_authorities() == files[0]
    assert TlsFiles(None, None, None).read() == [*contents(files[0]), None, None]


def test_nobody_else_is_trusted_in_the_place_of_whom_the_environment_names(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with pytest.raises(InputError, match=r"SSL_CERT_FILE\) '/nowhere/ca\.pem' cannot be read"):
        TlsFiles(None, None, None)


def test_a_file_that_is_not_there_is_named_with_its_setting(files):
    for place, setting in enumerate(("ca_cert", "ssl_cert", "ssl_cert_key")):
        given = [*files[:place], "/nowhere", *files[place + 1 :]]
        with pytest.raises(InputError, match=rf"^etcd: the [a-z ]+ \({setting}\b.* '/nowhere' cannot be read: No such"):
            TlsFiles(*given)


def test_authorities_are_found_where_distributions_keep_them(files, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    paths = ssl.get_default_verify_paths()._replace(cafile=None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    monkeypatch.setattr(etcd_security, "BUNDLES", ("/nowhere/bundle", files[1]))
    assert system_authorities() == files[1]
    monkeypatch.setattr(etcd_security, "BUNDLES", ())
    with pytest.raises(InputError, match=r"no CA certificates; name etcd's with --rdzv-conf ca_cert=FILE"):
        TlsFiles(None, None, None)


def test_what_the_system_trusts_can_be_used(monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert ssl.create_default_context(cafile=system_authorities()).get_ca_certs()


def test_a_key_belongs_to_a_certificate(files):
    for cert, key in ((files[1], None), (None, files[2])):
        with pytest.raises(InputError, match="a certificate needs its key: give both ssl_cert and ssl_cert_key"):
            TlsFiles(files[0], cert, key)


def test_a_password_stays_on_the_machine():
    check_password([("127.0.0.1", 1), ("::1", 1), ("localhost", 1)])
    with pytest.raises(InputError) as raised:
        check_password([("localhost", 1), ("etcd0", 2379)])
    assert str(raised.value) == (
        "etcd: the password would be sent to etcd0 in plain text; use TLS: write https:// "
        "before the endpoint, or --rdzv-conf protocol=https"
    )
