from __future__ import annotations

import socket

import pytest

from holdfast.doctor.network import Interface, Reach, connect, interfaces, resolve, source_address


def test_the_interfaces_of_this_machine_are_seen():
    found = interfaces()
    assert Interface("lo", "127.0.0.1") in found
    assert all(one.is_loopback for one in found if one.name == "lo")
    assert {one.name for one in found} <= {name for _, name in socket.if_nameindex()}


def test_the_way_to_an_address_begins_at_one_of_ours():
    assert source_address("127.0.0.1", 29400) == "127.0.0.1"
    assert source_address("no such name", 29400) == ""


def test_whoever_listens_is_reached_and_whoever_does_not_refuses():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert connect("127.0.0.1", port)[:2] == (Reach.CONNECTED, "127.0.0.1")
        assert connect("localhost", port).reach is Reach.CONNECTED  # also where ::1 comes first, and refuses
    assert connect("127.0.0.1", port)[:2] == (Reach.REFUSED, "127.0.0.1")
    assert connect("no such name", port).reach is Reach.UNKNOWN_NAME


def test_a_name_that_cannot_be_one_is_an_error_like_any_other():
    assert resolve("127.0.0.1") == ["127.0.0.1"]
    with pytest.raises(OSError, match="label"):
        resolve("x" * 70)


@pytest.mark.parametrize(
    ("name", "address", "kind"),
    [
        ("lo", "127.0.0.1", "is_loopback"),
        ("eth0", "fe80::1", "is_link_local"),
        ("eth0", "169.254.7.1", "is_link_local"),
        ("docker0", "172.17.0.1", "is_virtual"),
        ("br-1f2e3d", "172.18.0.1", "is_virtual"),
    ],
)
def test_interfaces_that_lead_nowhere_are_known(name, address, kind):
    kinds = ("is_loopback", "is_link_local", "is_virtual")
    assert [one for one in kinds if getattr(Interface(name, address), one)] == [kind]
    assert not any(getattr(Interface("eth0", "10.0.0.1"), one) for one in kinds)
