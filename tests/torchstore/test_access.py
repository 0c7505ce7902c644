"""Who may use a store, as the record says it."""

from __future__ import annotations

from holdfast.torchstore.access import Access

NETWORK = (4, 0x0A000000, 0xFF000000)
PEERS = frozenset([b"\x0a\0\0\1"])


def test_without_words_of_the_users_only_who_serves_and_any_address_may():
    access = Access()
    assert (access.users, access.networks, access.peers, access.find_peers) == (frozenset(), (), None, None)


def test_networks_admit_nobody_else():
    """Without them, unknown peers mean all addresses."""
    assert Access(networks=(NETWORK,)).peers == frozenset()
    assert Access(networks=(NETWORK,), peers=PEERS).peers == PEERS
    assert Access(networks=None).peers is None


def test_the_access_of_a_job_keeps_what_the_user_said():
    def find():
        raise AssertionError("nobody asked")

    given = Access(frozenset([7]), (NETWORK,))
    access = given.of_job(PEERS, find)
    assert (access.users, access.networks, access.peers, access.find_peers) == (
        frozenset([7]),
        (NETWORK,),
        PEERS,
        find,
    )
    assert (given.peers, given.find_peers) == (frozenset(), None), "the one that was given stays as it is"


def test_the_first_job_of_no_peers_admits_no_address():
    assert Access().of_job(frozenset()).peers == frozenset()
