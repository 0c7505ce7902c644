from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stacks.wire import NODE_MAX_BYTES, STACKS_MAX_BYTES, RankStacks, decode, encode


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
