"""The ``holdfast`` command and its subcommands."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROG = "holdfast"

COMMANDS = {
    "run": ("holdfast.cli.running", "main", "start the workers of a training program and keep them running"),
    "exec": (
        "holdfast.cli.exec",
        "main",
        "run a program in which torch's launcher is holdfast",
    ),
    "report": (
        "holdfast.cli.report",
        "main",
        "show what happened in a run: attempts, failures, use of time",
    ),
    "runs": ("holdfast.cli.runs", "main", "list the runs on this machine"),
    "stacks": ("holdfast.cli.stacks", "main", "show where every worker of a run is right now"),
    "doctor": (
        "holdfast.cli.doctor",
        "main",
        "find problems of this machine that break jobs, and how to fix them",
    ),
    "forget": ("holdfast.cli.forget", "main", "delete a run's records from etcd, so that its id can be used again"),
    "token": ("holdfast.cli.token", "main", "make a secret token that the nodes of a job authenticate each other with"),
    "alias": ("holdfast.cli.alias", "main", "put a command torchrun that is holdfast into a directory"),
}
"""For each name: the module, the function that takes the rest of the arguments, and a summary for the help."""


INTERRUPTED = 130
"""128 + SIGINT. The number is repeated here, because nothing may be imported before an interruption is caught."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args`, by default this process's, and return the exit code."""
    try:
        return _main(args)
    except KeyboardInterrupt:  # before `exit_code` could catch it, or while it ended
        return INTERRUPTED


def _main(args: Sequence[str] | None) -> int:
    from holdfast.cli.exits import BAD_INPUT, exit_code, show

    word, *rest = list(sys.argv[1:] if args is None else args) or [""]
    if word in COMMANDS:
        return exit_code(lambda: _function(word)(rest), f"{PROG} {word}")
    if word in ("-h", "--help", "--version"):
        return exit_code(lambda: show(_version() if word == "--version" else _help()), PROG)
    from holdfast.errors.notice import say

    problem = f"unknown command {word!r}" if word else "no command given"
    say(f"{PROG}: error: {problem}; {_suggestion(word)} (see {PROG} --help)")
    return BAD_INPUT


def _suggestion(word: str) -> str:
    from difflib import get_close_matches
    from os.path import isfile

    is_program = word.endswith(".py") or isfile(word)
    if not is_program and (similar := get_close_matches(word, (*COMMANDS, "--help", "--version"), n=1)):
        return f"did you mean {similar[0]!r}?"
    if is_program or word.startswith("-"):
        return f"did you mean '{PROG} run ...'?"
    return f"choose from {', '.join(COMMANDS)}"


def _function(name: str) -> Callable[[list[str]], object]:
    module_name, function_name, _ = COMMANDS[name]
    __import__(module_name)
    function: Callable[[list[str]], object] = getattr(sys.modules[module_name], function_name)
    return function


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {summary}" for name, (_, _, summary) in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROG} COMMAND [options]",
            "",
            "commands:",
            *lines,
            "",
            f"Run {PROG} COMMAND --help for the options of a command, {PROG} --version for the version.",
        ]
    )


def _version() -> str:
    from holdfast import __version__

    return f"{PROG} {__version__}"
