"""What ``store_users`` and ``store_peers`` mean, and what is said when they mean nothing."""

from __future__ import annotations

import ipaddress
import pwd

import pytest

from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousParameters
from holdfast.rendezvous.static import StaticRendezvous
from holdfast.rendezvous.store_access import LISTED_MAX, access_from, packed


def access(**config):
    return access_from(RendezvousParameters("static", "", "run", 1, 1, **config))


def test_without_settings_nobody_is_named():
    made = access()
    assert (made.users, made.networks, made.peers) == (frozenset(), (), None)


def test_users_are_numbers_and_names():
    root = pwd.getpwuid(0).pw_name
    assert access(store_users=f"1000+{root}+4294967294").users == {1000, 0, 4_294_967_294}
    assert access(store_users=1000).users == {1000}
    assert access(store_users="any").users is None


def test_networks_are_of_both_kinds_and_an_address_is_a_small_one():
    made = access(store_peers="10.1.2.3/16+fd00::/64+192.0.2.1")
    numbers = [int(ipaddress.ip_address(text)) for text in ("10.1.0.0", "fd00::", "192.0.2.1")]
    assert [(size, bits) for size, bits, _ in made.networks] == [(4, numbers[0]), (16, numbers[1]), (4, numbers[2])]
    assert [mask.bit_count() for _, _, mask in made.networks] == [16, 64, 32]
    assert made.peers == frozenset(), "only these"
    assert access(store_peers="any").networks is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"store_users": "no-such-user"}, "store_users=no-such-user: unknown user 'no-such-user'; write user"),
        ({"store_users": "4294967295"}, "unknown user '4294967295'"),
        ({"store_users": "9" * 5_000}, "unknown user '999"),
        ({"store_users": "1++2"}, "unknown user ''"),
        ({"store_users": "²"}, "unknown user '²'"),
        ({"store_users": "a\0b"}, "unknown user"),
        ({"store_peers": "node7"}, "store_peers=node7: 'node7' is neither an address nor a network; write addresses"),
        ({"store_peers": "10.0.0.0/33"}, "'10.0.0.0/33' is neither an address nor a network"),
        (
            {"store_peers": "+".join(["10.0.0.1"] * (LISTED_MAX + 1))},
            f"{LISTED_MAX + 1} entries; the limit is {LISTED_MAX}",
        ),
    ],
)
def test_what_cannot_be_understood_is_bad_input(config, message):
    with pytest.raises(InputError) as raised:
        access(**config)
    assert message in str(raised.value)


@pytest.mark.parametrize("nodes", [1, 2])
def test_nodes_that_were_told_who_they_are_look_at_them_at_once(nodes):
    params = RendezvousParameters("static", "127.0.0.1:29500", "run", nodes, nodes, rank=0, store_users="nobody-here")
    with pytest.raises(InputError):
        StaticRendezvous.from_parameters(params)


def test_of_what_others_tell_only_addresses_count():
    told = [
        "10.0.0.1",
        "::ffff:10.0.0.2",
        "fe80::1%eth0",
        "node7",
        "",
        "10.0.0.0/8",
        "0:0",
        "1.2.3.4\0",
        "\udcff",
        "x" * 9999,
    ]
    assert packed(told) == {b"\x0a\0\0\1", b"\x0a\0\0\2", b"\xfe\x80" + bytes(13) + b"\1"}
