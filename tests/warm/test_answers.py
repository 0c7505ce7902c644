"""Messages of the template: what was said is read, and anything else is no message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.warm.answers import MESSAGE_MAX_BYTES, NAMES, decode, encode, process_in


@given(st.sampled_from(sorted(NAMES)), st.text(max_size=100))
def test_what_is_encoded_is_decoded(name, text):
    visible = text.replace("\0", "").encode("utf-8", "backslashreplace").decode()
    assert decode(encode({name: text})) == {name: visible}


@given(st.binary(max_size=300))
def test_no_bytes_make_it_raise(data):
    said = decode(data)
    assert said == {} or NAMES & said.keys()


def test_a_message_without_a_known_name_is_none():
    assert decode(b"") == {}
    assert decode(encode({"nonsense": 1})) == {}


def test_the_end_of_a_long_message_is_cut_off():
    data = encode({"problem": "x" * 2 * MESSAGE_MAX_BYTES})
    assert len(data) == MESSAGE_MAX_BYTES
    assert decode(data)["problem"].startswith("xxx")


def test_the_number_of_a_process():
    assert process_in("4711") == 4711
    for text in ("", "-1", "1.5", "x", "\u0664", "1" * 11):
        assert process_in(text) == 0
