"""One member of etcd: its name, and what its requests fail with when it is given up."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.coordination.etcd_member import Member, name_of, open_channel
from holdfast.coordination.etcd_rpc import load_grpc


@pytest.mark.parametrize(
    ("endpoint", "name"), [(("etcd0", 2379), "etcd0:2379"), (("10.0.0.1", 1), "10.0.0.1:1"), (("::1", 7), "[::1]:7")]
)
def test_a_name_is_an_address_that_can_be_written_into_an_endpoint(endpoint, name):
    assert name_of(endpoint) == name


def test_a_member_that_was_given_up_says_so_or_what_it_answered():
    async def story():
        member = Member(("::1", 1), open_channel(load_grpc(), ("::1", 1), None, 1.0))
        assert (member.can_serve, member.has_answered) == (True, False)
        assert str(member.given_up()) == "etcd at [::1]:1 was given up"
        member.fault = "etcd at [::1]:1 answers with nonsense"
        assert str(member.given_up()) == member.fault
        await member.channel.close()

    asyncio.run(story())
