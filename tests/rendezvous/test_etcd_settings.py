"""How etcd is spoken to: what is said twice has to agree, and what is not said is not guessed to a secret's cost."""

from __future__ import annotations

import pytest

from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousParameters
from holdfast.rendezvous.etcd_settings import etcd_access

SYSTEM = "/the/system/bundle.crt"


@pytest.fixture(autouse=True)
def _system(monkeypatch):
    monkeypatch.setattr("holdfast.rendezvous.etcd_settings.system_authorities", lambda: SYSTEM)


def access(endpoint, **config):
    return etcd_access(RendezvousParameters("etcd", endpoint, "run", 1, 2, **config))


@pytest.mark.parametrize(
    ("endpoint", "config"),
    [
        ("etcd0", {}),
        ("http://etcd0", {}),
        ("etcd0", {"protocol": "http"}),
        ("http://etcd0,etcd1", {"protocol": "http"}),
        ("HTTP://etcd0", {}),
        ("etcd0", {"protocol": "", "ca_cert": ""}),
        ("http://localhost", {"user": "bob", "password": "pw"}),
        ("127.0.0.1,[::1]:2", {"user": "bob", "password": "pw"}),
    ],
)
def test_plain_text(endpoint, config):
    made = access(endpoint, **config)
    assert (made.ca_cert, made.cert, made.cert_key) == (None, None, None)


@pytest.mark.parametrize(
    ("endpoint", "config", "files"),
    [
        ("https://etcd0", {}, (SYSTEM, None, None)),
        ("HTTPS://etcd0", {}, (SYSTEM, None, None)),
        ("etcd0", {"protocol": "https"}, (SYSTEM, None, None)),
        ("etcd0", {"protocol": "HTTPS"}, (SYSTEM, None, None)),
        ("https://etcd0,etcd1", {"protocol": "https"}, (SYSTEM, None, None)),
        ("etcd0", {"ca_cert": "/ca"}, ("/ca", None, None)),
        ("etcd0", {"ssl_cert": "/c", "ssl_cert_key": "/k"}, (SYSTEM, "/c", "/k")),
        ("https://etcd0", {"cacert": "/ca", "cert": "/c", "key": "/k"}, ("/ca", "/c", "/k")),
        ("https://etcd0", {"ca_cert": "/ca", "cacert": "/ca", "cert": "/c", "ssl_cert_key": "/k"}, ("/ca", "/c", "/k")),
    ],
)
def test_tls(endpoint, config, files):
    made = access(endpoint, user="bob", password="pw", **config)
    assert (made.ca_cert, made.cert, made.cert_key) == files
    assert (made.user, made.password) == ("bob", "pw")


def test_members_and_files_are_known_from_everywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = access("https://etcd0, etcd1:4001,https://[fd00::1]:3", ca_cert="ca.pem", etcd_prefix="/x/")
    assert made.endpoints == (("etcd0", 2379), ("etcd1", 4001), ("fd00::1", 3))
    assert (made.ca_cert, made.prefix) == (str(tmp_path / "ca.pem"), "/x/")


@pytest.mark.parametrize(
    ("endpoint", "config", "message"),
    [
        ("http://etcd0", {"protocol": "https"}, "--rdzv-conf protocol=https: the endpoint begins with http://; "),
        ("https://etcd0", {"protocol": "http"}, "--rdzv-conf protocol=http: the endpoint begins with https://; "),
        ("http://etcd0,https://etcd1", {}, "--rdzv-endpoint 'http://etcd0,https://etcd1': http:// and https://"),
        ("etcd0", {"protocol": "ftp"}, "--rdzv-conf protocol=ftp: write http or https"),
        ("http://etcd0", {"ca_cert": "/ca"}, "--rdzv-endpoint 'http://etcd0': http is plain text"),
        ("etcd0", {"protocol": "http", "cert": "/c", "key": "/k"}, "--rdzv-conf protocol=http: http is plain text"),
        ("https://etcd0", {"ca_cert": "/a", "cacert": "/b"}, "--rdzv-conf ca_cert=/a,cacert=/b: both mean the same; "),
        ("etcd0", {"user": "bob", "password": "pw"}, "the password would be sent to etcd0 in plain text; use TLS: "),
        ("http://10.0.0.1", {"user": "bob", "password": "pw"}, "the password would be sent to 10.0.0.1 in plain text"),
        ("127.0.0.1,etcd1", {"user": "bob", "password": "pw"}, "the password would be sent to etcd1 in plain text"),
        ("etcd0", {"user": "bob"}, "the password would be sent to etcd0 in plain text"),
        ("https://etcd0", {"password": "pw"}, "--rdzv-conf password: no user given; "),
        ("", {}, "--rdzv-backend etcd: give --rdzv-endpoint HOST:PORT"),
    ],
)
def test_what_cannot_be_meant_is_refused(endpoint, config, message):
    with pytest.raises(InputError, match=message) as raised:
        access(endpoint, **config)
    assert "\n" not in str(raised.value)
    assert "pw" not in str(raised.value)
