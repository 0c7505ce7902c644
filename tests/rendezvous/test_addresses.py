from __future__ import annotations

import os
import socket

from holdfast.rendezvous.addresses import bracketed, is_own, own_addresses


def test_what_is_ones_own():
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")
    assert own_addresses("127.0.0.1") == ["127.0.0.1"]
    assert own_addresses("192.0.2.1") == []
    assert own_addresses("no-such-host.invalid") == []


def test_a_name_that_leads_to_loopback_here_means_every_address(monkeypatch):
    """On Debian a machine's own name is 127.0.1.1 to itself, and something else to all others."""
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    assert own_addresses("node7") == [""]
    assert own_addresses("localhost") == ["127.0.1.1"]


def test_a_name_of_ones_own_that_does_not_resolve(monkeypatch):
    def fail(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert own_addresses(os.uname().nodename) == [""]
    assert own_addresses("node8") == []


def test_how_people_write_them():
    assert bracketed("node7", 1) == "node7:1"
    assert bracketed("fd00::1", 1) == "[fd00::1]:1"
