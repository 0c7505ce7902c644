from __future__ import annotations

from random import Random

import msgspec
import pytest
from fuzz.mutations import mutated
from fuzz.shapes import BYTES, FRAMES, JSON, JSON_LINES, LINES, MSGPACK, WORDS
from fuzz.target import INPUT_MAX_BYTES

JSON_INPUT = b'{"a":[1,2.5,null,true,"text"],"b":{"c":"d"}}'
MSGPACK_INPUT = msgspec.msgpack.encode(["get", b"key", 7, {"a": None}])
FRAMES_INPUT = b"\0\0\0\x03\0\0\0\x07\x92\x01\x02" + b"\0\0\0\x01\0\0\0\x08\xff" + b"rest"


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        (JSON, JSON_INPUT),
        (JSON_LINES, JSON_INPUT + b"\nno json\n" + JSON_INPUT),
        (MSGPACK, MSGPACK_INPUT),
        (FRAMES, FRAMES_INPUT),
        (LINES, "one\ntwo é".encode()),
        (WORDS, b"--flag\0value\0\xff"),
    ],
)
def test_a_tree_that_is_not_changed_is_the_same_input(shape, data):
    assert shape.dump(shape.parse(data)) == data


@pytest.mark.parametrize("shape", [BYTES, JSON, JSON_LINES, MSGPACK, FRAMES, LINES, WORDS])
@pytest.mark.parametrize("data", [b"", b"\xff", JSON_INPUT, MSGPACK_INPUT, FRAMES_INPUT])
def test_whatever_is_mutated_is_bytes_within_the_limit(shape, data):
    chance = Random(1)
    made = {mutated(data, chance, shape, [data, JSON_INPUT]) for _ in range(300)}
    assert len(made) > 100
    assert all(isinstance(each, bytes) and len(each) <= INPUT_MAX_BYTES for each in made)


def test_values_are_changed_and_not_only_bytes():
    chance = Random(2)
    shapes = set()
    for _ in range(2_000):
        try:
            shapes.add(type(msgspec.json.decode(mutated(JSON_INPUT, chance, JSON, ()))["a"]).__name__)
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, RecursionError):
            continue
    assert shapes >= {"list", "str", "int", "float", "bool", "NoneType", "dict"}


def test_chance_is_an_argument():
    first, second = ([mutated(JSON_INPUT, Random(seed), JSON, [b"x"]) for seed in range(50)] for _ in range(2))
    assert first == second
