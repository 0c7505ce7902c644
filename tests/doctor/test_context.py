from __future__ import annotations

import pytest

from holdfast.doctor.context import read_meeting
from holdfast.errors.tree import InputError

TOKEN = {"HOLDFAST_TOKEN": "a secret of the test"}


def test_an_endpoint_is_read_as_a_run_reads_it():
    meeting = read_meeting("c10d", "node0", {"keep_alive_interval": "2"}, TOKEN)
    assert meeting.endpoints == (("node0", 29400),)
    assert (meeting.token, meeting.keep_alive_s, meeting.ttl_s, meeting.complaint) == (
        TOKEN["HOLDFAST_TOKEN"].encode(),
        2.0,
        6.0,
        "",
    )
    settings = {
        "user": "bob",
        "password": "pw",
        "cacert": "/srv/ca.pem",
        "ssl_cert": "/srv/me.pem",
        "key": "/srv/me.key",
    }
    meeting = read_meeting("etcd", "https://etcd0, etcd1:4001,[fd00::1]", settings, {})
    assert meeting.endpoints == (("etcd0", 2379), ("etcd1", 4001), ("fd00::1", 2379))
    assert (meeting.user, meeting.password, meeting.ttl_s, meeting.complaint) == ("bob", "pw", 8.0, "")
    assert meeting.tls == ("/srv/ca.pem", "/srv/me.pem", "/srv/me.key")


@pytest.mark.parametrize(
    ("endpoint", "settings"), [("https://etcd0", {}), ("etcd0", {"protocol": "https"}), ("etcd0", {"cacert": "/x"})]
)
def test_etcd_is_asked_over_tls_where_a_run_would_speak_it(endpoint, settings):
    assert read_meeting("etcd", endpoint, settings, {}).tls


@pytest.mark.parametrize("endpoint", ["etcd0", "http://etcd0"])
def test_etcd_is_asked_in_plain_text_where_a_run_would_speak_it(endpoint):
    assert not read_meeting("etcd", endpoint, {}, {}).tls


@pytest.mark.parametrize(
    ("endpoint", "settings", "complaint"),
    [
        ("etcd0", {"user": "bob", "password": "pw"}, "the password would be sent to etcd0 in plain text"),
        ("http://etcd0", {"protocol": "https"}, "begins with http://"),
        ("http://etcd0,https://etcd1", {}, "http:// and https://"),
    ],
)
def test_what_a_run_would_refuse_of_etcd_is_kept(endpoint, settings, complaint):
    assert complaint in read_meeting("etcd", endpoint, settings, {}).complaint


@pytest.mark.parametrize(
    ("settings", "environ", "complaint"),
    [
        ({}, {}, "so it needs a token"),
        ({"keep_alive_max_attempt": "1"}, TOKEN, "must be at least 2"),
        ({"is_host": "perhaps"}, TOKEN, "is_host=true or is_host=false"),
        ({"ca_cert": "/srv/none.pem"}, TOKEN, "TLS needs all three"),
        (dict.fromkeys(("ca_cert", "ssl_cert", "ssl_cert_key"), "/srv/none.pem"), TOKEN, "cannot be used"),
    ],
)
def test_what_a_run_would_refuse_is_kept(settings, environ, complaint):
    meeting = read_meeting("c10d", "node0:29400", settings, environ)
    assert complaint in meeting.complaint
    assert meeting.endpoints == (("node0", 29400),)


@pytest.mark.parametrize(
    ("backend", "endpoint"), [("c10d", "node0:port"), ("c10d", "node0:99999"), ("etcd", "etcd0,,")]
)
def test_an_endpoint_that_cannot_be_read_is_bad_input(backend, endpoint):
    with pytest.raises(InputError, match=r"^--endpoint "):
        read_meeting(backend, endpoint, {}, TOKEN)


def test_etcd_has_other_names_for_certificates():
    settings = {"cacert": "/srv/ca.pem", "cert": "/srv/me.pem", "key": "/srv/me.key"}
    assert read_meeting("etcd", "etcd0", settings, {}).tls == ("/srv/ca.pem", "/srv/me.pem", "/srv/me.key")
