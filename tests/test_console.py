"""What holdfast itself says cannot steer a terminal, whoever's text is in it: a worker's, a peer's, a user's."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import written_runs

import holdfast
from holdfast.cli.command import main
from holdfast.cli.exits import exit_code, show
from holdfast.errors.tree import InfrastructureError, InputError
from holdfast.events.run_index import register

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e\u2066\x9b31m\x7f\r\x08x"
"""Clears the screen, sets the title, turns the direction, has eight-bit controls, writes over what stands there."""

FAILS = f"""
class EvilError(Exception): pass
raise EvilError({HOSTILE!r} + "\\nholdfast: a line of its own")
"""

WRITERS = {
    "cli/exits.py": "all that commands print",
    "errors/notice.py": "all that is said on stderr without logging",
    "events/destinations.py": "events as JSON, which has only ASCII",
    "logger.py": "all that is logged",
    "metrics/handlers.py": "a destination of metrics that is asked for",
    "cli/startup/sitecustomize.py": "an interpreter that cannot import holdfast",
    "warm/exec_in_process.py": "a worker's own traceback",
}


def steers(text):
    """The characters of a text that a terminal acts on, but for line breaks and tabs."""
    return sorted({char for char in text if not char.isprintable() and char not in "\n\t"})


def command(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=120,
        check=False,
    )


def writes_to_a_stream(node):
    match node:
        case ast.Call(func=ast.Name(id="print" | "written")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr=stream), attr="write")):
            return stream in ("stdout", "stderr", "__stdout__", "__stderr__")
    return False


def test_few_places_write_to_the_terminal():
    """Whoever adds one has to see that what it writes is visible, and say here why it is needed."""
    package = Path(holdfast.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(map(writes_to_a_stream, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == WRITERS.keys()


def test_a_worker_cannot_speak_through_its_agent(tmp_path):
    """What it prints is its own; what the agent says of it is not."""
    (tmp_path / "fails.py").write_text(FAILS)
    words = ["--max-restarts", "1", "--redirects", "3", "--log-dir", str(tmp_path / "logs"), str(tmp_path / "fails.py")]
    ran = command("run", *words)
    assert ran.returncode == 1
    assert "restart 1 of 1" in ran.stderr
    assert steers(ran.stdout + ran.stderr) == []
    assert not any(line.startswith("holdfast: a line") for line in ran.stderr.splitlines())
    (run_dir,) = (tmp_path / "logs").iterdir()
    for told in (command("report", str(run_dir)), command("runs"), command("report", str(run_dir), "--html", "-")):
        assert told.returncode == 0, told.stderr
        assert "EvilError" in told.stdout or "fails" in told.stdout
        assert steers(told.stdout + told.stderr) == []


@pytest.mark.parametrize(
    "words",
    [
        [HOSTILE],
        ["run", "--nnodes", HOSTILE, __file__],
        ["run", f"--{HOSTILE}", "x"],
        ["run", "--rdzv-backend", HOSTILE, __file__],
        ["run", "--rdzv-conf", HOSTILE, __file__],
        ["run", HOSTILE],
        ["report", HOSTILE],
        ["report", f"--{HOSTILE}"],
        ["runs", "-n", HOSTILE],
        ["stacks", HOSTILE],
        ["stacks", "a", HOSTILE],
        ["doctor", "--only", HOSTILE],
        ["doctor", f"--{HOSTILE}"],
        ["forget", HOSTILE, "--rdzv-backend", HOSTILE],
        ["forget", HOSTILE, HOSTILE],
    ],
    ids=ascii,
)
def test_an_argument_is_quoted_in_a_visible_form(words):
    ran = command(*words)
    assert ran.returncode == 2, ran.stderr
    assert "owned" in ran.stderr
    assert steers(ran.stdout + ran.stderr) == []
    assert ran.stderr.count("\n") == 1


def test_a_variable_that_help_shows_is_visible_too():
    ran = command("forget", "--help", PET_RDZV_BACKEND=HOSTILE)
    assert "owned" in ran.stdout
    assert steers(ran.stdout) == []


def test_run_ids_that_are_known_are_named_in_a_visible_form(tmp_path, capsys):
    events = Path(written_runs.success(tmp_path).directory, "events.jsonl")
    events.write_text(events.read_text().replace('"job7"', json.dumps(HOSTILE)))
    register(str(events.parent))
    assert main(["report", f"no-such-run{HOSTILE}"]) == 2
    assert main(["runs"]) == 0
    told = capsys.readouterr()
    assert "owned" in told.err
    assert "owned" in told.out
    assert steers(told.err + told.out) == []


@pytest.mark.parametrize("error", [InputError, InfrastructureError])
def test_what_a_peer_gave_as_a_reason_is_one_visible_line(error, capsys):
    def fail():
        raise error(f"the peer says {HOSTILE}\nholdfast: all is well")

    assert exit_code(fail, "holdfast test") in (1, 2)
    err = capsys.readouterr().err
    assert "the peer says" in err
    assert err.count("\n") == 1
    assert steers(err) == []


def test_what_is_shown_keeps_our_colours_and_no_other_codes(capsys):
    show(f"\x1b[1;31mpainted\x1b[0m {HOSTILE} \x1b[5mblinking", colours=True)
    assert capsys.readouterr().out.startswith("\x1b[1;31mpainted\x1b[0m \\x1b[2J")
    show("\x1b[31mnot painted\x1b[0m")
    assert capsys.readouterr().out == "\\x1b[31mnot painted\\x1b[0m\n"


def test_ordinary_text_of_any_script_stays(capsys):
    text = "Grüße 日本語 한국어 עברית العربية नमस्ते 👨‍👩‍👧 ✓ ✕ → fußgänger\u00a0x\u3000y"
    show(text)
    assert capsys.readouterr().out == f"{text}\n"
