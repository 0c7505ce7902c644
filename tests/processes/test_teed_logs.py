"""Logs that are shown while they are written, and the lines of them that are kept apart."""

from __future__ import annotations

import math
import os

from holdfast.processes.logs import LogsDest
from holdfast.processes.teed_logs import TeedLogs


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_lines_are_shown_with_their_prefix_and_those_with_a_text_are_copied(tmp_path, capfd):
    logs = LogsDest(
        tee_stdouts={0: written(tmp_path, "out0", "loss 1\nnoise\n"), 1: written(tmp_path, "out1", "loss 2\n")},
        tee_stderrs={0: written(tmp_path, "err0", "a warning\n"), 1: os.devnull},
        filtered_stdout=str(tmp_path / "losses"),
        filtered_stderr=str(tmp_path / "nothing"),
    )
    teed = TeedLogs("set", {0: "zero: ", 1: "one: "})
    teed.start(logs, (["loss", "accuracy"], None))
    teed.stop(math.inf)
    teed.close()
    shown = capfd.readouterr()
    assert sorted(shown.out.splitlines()) == ["one: loss 2", "zero: loss 1", "zero: noise"]
    assert shown.err.splitlines() == ["zero: a warning"]
    assert sorted((tmp_path / "losses").read_text().splitlines()) == ["one: loss 2", "zero: loss 1"]
    assert not (tmp_path / "nothing").exists(), "no text was asked for"


def test_a_copy_that_cannot_be_written_is_named_and_the_lines_are_shown(tmp_path, capfd):
    logs = LogsDest(tee_stdouts={0: written(tmp_path, "out", "loss\n")}, filtered_stdout=str(tmp_path))
    teed = TeedLogs("set", {0: ""})
    teed.start(logs, (["loss"], None))
    teed.stop(math.inf)
    teed.close()
    shown = capfd.readouterr()
    assert shown.out == "loss\n"
    assert f"set: cannot open {str(tmp_path)!r}: " in shown.err
