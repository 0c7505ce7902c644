"""Records of a rendezvous as nodes write them, and all that somebody else may put in their place."""

from __future__ import annotations

import json

import msgspec
from hypothesis import strategies as st

from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.records import (
    Arrivals,
    BreakKind,
    Broken,
    End,
    EndKind,
    Failure,
    Fingerprint,
    Generation,
    Member,
    Node,
    Remembered,
    Short,
    StacksRequest,
    Verdict,
    encode,
)

NODES = ("a.1", "b.1", "c.1", "c.2")
"""Few, so that what different records say is about the same nodes."""

TEXT = st.text(max_size=20)
NAME = st.sampled_from(NODES)
ID = NAME | st.just("")
COUNT = st.integers(0, 4) | st.integers(0, 2**40)
PORT = st.integers(0, 65535)
SECONDS = st.floats(0, 1e6)

FAILURE = st.builds(
    *(Failure, ID, TEXT, st.integers(-1, 9), st.integers(0, 9), COUNT, st.integers(-64, 255), TEXT),
    st.floats(0, 2e9),
    *(TEXT, TEXT, st.sampled_from(FailureKind), TEXT, TEXT, TEXT, COUNT, SECONDS, COUNT, TEXT),
)
FINGERPRINT = st.builds(Fingerprint, TEXT, TEXT, COUNT, COUNT, COUNT)
MEMBER = st.builds(Member, NAME, TEXT, TEXT, TEXT, st.integers(0, 64))
RECORDS = {
    Node: st.builds(
        *(Node, TEXT, TEXT, PORT, TEXT, st.integers(0, 64), st.integers(-1, 9), COUNT, PORT),
        *(st.none() | FAILURE, ID, SECONDS, COUNT, FINGERPRINT, st.lists(TEXT, max_size=3).map(tuple), COUNT),
    ),
    Generation: st.builds(
        *(Generation, st.integers(1, 5), st.lists(MEMBER, min_size=1, max_size=4).map(tuple), TEXT, PORT, COUNT, COUNT),
        PORT,
        st.builds(Remembered, COUNT, COUNT, TEXT, ID, COUNT, st.lists(NAME, max_size=3).map(tuple)),
        st.none() | st.builds(Verdict, FAILURE, COUNT, TEXT, COUNT),
        ID,
        st.lists(TEXT, max_size=3).map(tuple),
        SECONDS,
        st.builds(Arrivals, COUNT, st.lists(st.tuples(TEXT, COUNT), max_size=3).map(tuple)),
        FINGERPRINT,
    ),
    Broken: st.builds(
        *(Broken, st.integers(0, 5), st.sampled_from(BreakKind), TEXT, st.none() | FAILURE, COUNT),
        *(st.lists(st.tuples(NAME, TEXT), max_size=3).map(tuple), st.lists(NAME, max_size=3).map(tuple)),
    ),
    End: st.builds(End, st.sampled_from(EndKind), TEXT, st.none() | FAILURE, COUNT, TEXT),
    Short: st.builds(Short, COUNT, COUNT),
    StacksRequest: st.builds(StacksRequest, COUNT, st.just("20260101T000000-ab12"), NAME, TEXT),
}
"""By kind, records that a node may write."""

ODD = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("x" * 900_000)),
    st.just("\x1b[2J\n\0"),
    st.lists(st.integers() | st.text(max_size=4), max_size=4),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=3),
    st.sampled_from([-1, 2**31, 2**63, 2**64, 10**30, 1e308, -1e308, "../../etc/passwd", "a/b", "", "NaN"]),
)
"""Values that are not what somebody expects there."""


@st.composite
def mutated(draw, kind):
    """A valid record of a kind, in which some values are others, and whose bytes may be damaged."""
    plain = msgspec.to_builtins(draw(RECORDS[kind]))
    for _ in range(draw(st.integers(1, 3))):
        target = plain
        while True:
            keys = list(target) if isinstance(target, dict) else list(range(len(target)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(target[key], (dict, list)) and target[key] and draw(st.booleans()):
                target = target[key]
                continue
            target[key] = draw(ODD)
            break
    data = json.dumps(plain).encode("utf-8", "surrogatepass")
    if draw(st.booleans()):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        data = data[:place] + draw(st.binary(max_size=3)) + data[place + draw(st.integers(0, 3)) :]
    return data


def values(kind):
    """Whatever may be found where a record of this kind should be."""
    wrong = ODD.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
    deep = st.sampled_from([b"[" * 100_000, b'{"failure":' * 100_000])
    return st.one_of(RECORDS[kind].map(encode), mutated(kind), wrong, st.binary(max_size=40), deep)
