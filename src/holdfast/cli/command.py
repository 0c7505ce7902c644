"""The ``holdfast`` command and its subcommands."""

from __future__ import annotations

import sys

from holdfast.cli.exits import BAD_INPUT, exit_code, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROG = "holdfast"

COMMANDS = {
    "run": ("holdfast.cli.running", "main", "start the workers of a training program, and keep them running"),
    "report": ("holdfast.cli.report", "main", "tell what became of a run: its attempts, its failures, its time"),
    "runs": ("holdfast.cli.runs", "main", "list what was run here"),
    "stacks": ("holdfast.cli.stacks", "main", "show where every worker of a run is right now"),
    "doctor": ("holdfast.cli.doctor", "main", "look at this machine for what breaks jobs, and say what to do"),
    "forget": ("holdfast.cli.forget", "main", "delete what a run has left in etcd, so that its id can be used again"),
    "token": ("holdfast.cli.token", "main", "make a secret token, with which the nodes of a job let each other in"),
}
"""For each name: the module, the function that takes the rest of the arguments, and a summary for the help."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args`, by default this process's, and return the exit code."""
    word, *rest = list(sys.argv[1:] if args is None else args) or [""]
    if word in COMMANDS:
        return exit_code(lambda: _function(word)(rest), f"{PROG} {word}")
    if word in ("-h", "--help", "--version"):
        return exit_code(lambda: show(_version() if word == "--version" else _help()), PROG)
    problem = f"{word!r} is no command" if word else "a command is missing"
    from holdfast.errors.notice import say

    say(f"{PROG}: error: {problem}; there is: {', '.join(COMMANDS)} (see {PROG} --help)")
    return BAD_INPUT


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
            f"{PROG} COMMAND --help says more of each; {PROG} --version says which version this is.",
        ]
    )


def _version() -> str:
    from holdfast import __version__

    return f"{PROG} {__version__}"
