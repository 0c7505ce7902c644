"""Which set is made of what callers give, and when it starts."""

from __future__ import annotations

import sys
from pathlib import Path

import functions
import pytest

from holdfast.processes import MultiprocessContext, Std, SubprocessContext, start_processes

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_name_is_a_command_and_a_function_is_called(start):
    assert type(start("true", [()])) is SubprocessContext
    assert type(start(functions.nothing, [()])) is MultiprocessContext


@pytest.mark.parametrize("entrypoint", ["true", functions.nothing])
def test_before_the_start_no_process_exists(start, entrypoint):
    seen = []

    def look(context):
        with pytest.raises(ValueError, match="not running"):
            context.fileno()
        seen.append((context, context.pids()))

    context = start(entrypoint, [(), ()], before_start=look)
    assert seen == [(context, {})]
    assert sorted(context.pids()) == [0, 1]
    assert not context.wait().is_failed()


def test_an_error_before_the_start_starts_nothing(logs, tmp_path):
    def refuse(context):
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        start_processes("set", "touch", {0: (str(tmp_path / "ran"),)}, {0: {}}, logs(), before_start=refuse)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["command", "function"])
def test_every_option_reaches_the_set(logs, kind, capfd):
    """By position, as callers of torch may give them."""
    words = ("out 1", "err 1")
    command = (sys.executable, ("-c", "import sys; print(sys.argv[1]); print(sys.argv[2], file=sys.stderr)", *words))
    entrypoint, args = command if kind == "command" else (say, words)
    seen = []
    options = (logs(tee=Std.ALL), {0: "> "}, "fork", None, ["out"], ["err"], 7.0, seen.append)
    with start_processes("name", entrypoint, {0: args}, {0: {"OF_RANK": "x"}}, *options) as context:
        assert not context.wait().is_failed()
    assert seen == [context]
    assert (context.name, context.shutdown_timeout) == ("name", 7.0)
    assert context.envs[0]["OF_RANK"] == "x"
    assert capfd.readouterr() == ("> out 1\n", "> err 1\n")
    assert Path(context.logs.filtered_stdout).read_text() == "> out 1\n"
    assert Path(context.logs.filtered_stderr).read_text() == "> err 1\n"


def say(out, err):
    print(out)
    print(err, file=sys.stderr)
