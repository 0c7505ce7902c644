from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stacks.wire import (
    HOST_MAX_CHARS,
    NODE_MAX_BYTES,
    REFUSED,
    STACKS_MAX_BYTES,
    RankStacks,
    decode,
    encode,
)


def test_what_was_encoded_is_decoded():
    ranks = {7: RankStacks("node1", 12, "Stack ...\n"), 0: RankStacks("node\udcff", 11, "é\udcff")}
    decoded = decode(encode(ranks))
    assert decoded[7] == ranks[7]
    assert (decoded[0].host, decoded[0].text) == ("node\\udcff", "é\\udcff")


def test_a_rank_has_its_share_of_bytes():
    text = decode(encode({0: RankStacks("node1", 1, "head" + "x" * 1_000_000 + "tail")}))[0].text
    assert len(text) < STACKS_MAX_BYTES + 100
    assert text.startswith("headx")
    assert text.endswith("xtail")
    assert "characters left out" in text


@pytest.mark.parametrize("count", [1, 16, 64, 2000])
@pytest.mark.parametrize("char", ["x", "é", "\udcff", "😀"])
def test_a_node_never_sends_more_than_the_store_takes(count, char):
    text = char * 20_000
    data = encode({rank: RankStacks("h" * 300, rank, text) for rank in range(count)})
    assert len(data) <= NODE_MAX_BYTES
    assert len(decode(data)) == count


def test_uneven_text_is_cut_to_size_too():
    text = "x" * 100_000 + "😀" * 20_000
    assert len(encode({0: RankStacks("node1", 1, text)})) < STACKS_MAX_BYTES + 1024


@given(st.binary(max_size=200))
def test_other_bytes_are_a_value_error(data):
    with suppress(ValueError):
        decode(data)


def test_too_many_bytes_are_not_even_looked_at():
    with pytest.raises(ValueError, match="more than"):
        decode(b"\x80" * (NODE_MAX_BYTES + 1))


@pytest.mark.parametrize(
    "told",
    [
        {-1: ("h", 1, "")},
        {0: ("h", -1, "")},
        {0: ("h", 2**60, "")},
        dict.fromkeys(range(70000), ("h", 1, "")),
        {"rank": ("h", 1, "")},
    ],
)
def test_what_is_beyond_a_limit_is_refused(told):
    plain = {rank: {"host": host, "pid": pid, "text": text} for rank, (host, pid, text) in told.items()}
    with pytest.raises(ValueError, match=r"not the stacks of a node|more than"):
        decode(msgspec.msgpack.encode(plain))


@pytest.mark.parametrize("data", [b"\x81\x00\x83\xa4host\xa1\xff\xa3pid\x01\xa4text\xa0", b"\x91" * 100_000])
def test_bytes_that_msgspec_stumbles_over_are_a_value_error(data):
    with pytest.raises(ValueError, match="not the stacks of a node"):
        decode(data)


def test_a_node_that_refuses_to_tell_has_not_ended():
    with pytest.raises(ValueError, match="asked too often"):
        decode(REFUSED)
    assert encode({}) != REFUSED


def test_the_name_of_a_host_is_a_visible_line():
    plain = {0: {"host": "\x1b[2J\n" + "x" * 900, "pid": 1, "text": ""}}
    host = decode(msgspec.msgpack.encode(plain))[0].host
    assert host.startswith("\\x1b[2J\\nxxx")
    assert len(host) == HOST_MAX_CHARS
