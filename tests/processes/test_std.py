from __future__ import annotations

import pytest

from holdfast.processes.std import Std, to_map

IMPORTS_TORCH = True


def test_values_are_those_of_the_command_line():
    assert [Std.NONE, Std.OUT, Std.ERR, Std.ALL] == [0, 1, 2, 3]
    assert Std.OUT | Std.ERR == Std.ALL
    assert Std.OUT in Std.ALL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", Std.NONE),
        ("1", Std.OUT),
        ("2", Std.ERR),
        ("3", Std.ALL),
        (" 3\n", Std.ALL),
        ("0:1", {0: Std.OUT}),
        ("0:1,1:2", {0: Std.OUT, 1: Std.ERR}),
        ("10:1,127:3,4096:0", {10: Std.OUT, 127: Std.ALL, 4096: Std.NONE}),
        (" 0 : 1 , 10:2 ", {0: Std.OUT, 10: Std.ERR}),
    ],
)
def test_text_is_read(text, expected):
    result = Std.from_str(text)
    assert result == expected
    assert all(isinstance(std, Std) for std in (result.values() if isinstance(result, dict) else [result]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "4",
        "-1",
        "11",
        "x",
        "0:4",
        "0:",
        ":1",
        "0:1,",
        ",0:1",
        "0:1,,1:1",
        "-1:1",
        "1 0:1",
        "0:1;1:1",
        "0:1 1:1",
        f"{'9' * 5_000}:1",
        "٣",
    ],
)
def test_bad_text_is_shown_together_with_the_grammar(text):
    with pytest.raises(ValueError, match="or LOCAL_RANK:N for some") as caught:
        Std.from_str(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["0:1,0:1", "0:1,1:1,0:2", "7:1,07:2"])
def test_a_rank_given_twice_is_named(text):
    with pytest.raises(ValueError, match=r"local rank [07] is given twice") as caught:
        Std.from_str(text)
    assert repr(text) in str(caught.value)


def test_one_value_is_for_every_rank():
    assert to_map(Std.OUT, 3) == {0: Std.OUT, 1: Std.OUT, 2: Std.OUT}


def test_ranks_missing_from_a_map_get_none_and_foreign_ones_are_ignored():
    assert to_map({1: Std.ERR, 12: Std.ALL}, 3) == {0: Std.NONE, 1: Std.ERR, 2: Std.NONE}
    assert to_map({}, 2) == {0: Std.NONE, 1: Std.NONE}
    assert to_map({10: Std.OUT}, 11)[10] is Std.OUT


@pytest.mark.torch
@pytest.mark.parametrize("text", ["0", "3", "0:1", "0:1,1:3,9:0"])
def test_torch_reads_the_same(text):
    from torch.distributed.elastic.multiprocessing.api import Std as TorchStd
    from torch.distributed.elastic.multiprocessing.api import to_map as torch_to_map

    assert Std.from_str(text) == TorchStd.from_str(text)
    assert to_map(Std.from_str(text), 4) == torch_to_map(TorchStd.from_str(text), 4)
    assert to_map(TorchStd.from_str(text), 4) == to_map(Std.from_str(text), 4)
