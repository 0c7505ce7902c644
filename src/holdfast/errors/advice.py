"""Advice on failures: one sentence for each kind."""

from __future__ import annotations

import os

from holdfast.errors.kind import COMMAND_LINE, INTERPRETER_END, MODULE_START, FailureKind

_BY_EXCEPTION = {
    "SyntaxError": "Fix the syntax error: the program cannot be compiled, so a restart cannot help.",
    "IndentationError": "Fix the indentation: the program cannot be compiled, so a restart cannot help.",
    "TabError": "Do not mix tabs and spaces: the program cannot be compiled, so a restart cannot help.",
    "ModuleNotFoundError": "Install the missing module for this interpreter, on every machine of the job.",
    "ImportError": "Check the installed versions on every machine: something that the program imports is missing.",
    "FileNotFoundError": "Check that the path exists on this machine, too: machines may not share all disks.",
    "PermissionError": "Check that the user who runs the workers may read and write this path.",
    "MemoryError": "Use a smaller batch or model, fewer workers on a machine, or a machine with more memory.",
    "OutOfMemoryError": "The accelerator's memory is full: use a smaller batch, checkpointing, or more devices.",
    "BrokenPipeError": (
        "Nobody reads the program's output any more, as after `| head`: read it to its end, or write it to a file."
    ),
    "NoMainGuardError": 'Put the launch under `if __name__ == "__main__":`, since every worker imports this file.',
    "KeyboardInterrupt": "Nothing is wrong: the program was interrupted.",
}
"""Advice by exception class. It is more specific than the advice by kind."""

_BY_KIND = {
    FailureKind.EXCEPTION: "Read the traceback from its last line upwards; look first at {place}.",
    FailureKind.COMMUNICATION: (
        "Look at the other ranks and at the network first: this rank lost a peer and is rarely the cause itself."
    ),
    FailureKind.CRASH: (
        "Native code crashed: look at the Python stack of the crashed thread, and check that the versions of the "
        "native libraries (driver, CUDA, extensions) match."
    ),
    FailureKind.OUT_OF_MEMORY: (
        "Use less memory on each worker (batch, data loader workers, prefetching), run fewer workers on a machine, or "
        "raise the memory limit of the container or cgroup."
    ),
    FailureKind.KILLED: (
        "Find out who sent the signal: the scheduler (preemption, a time or memory limit), the kernel, or a person; "
        "their logs say more."
    ),
    FailureKind.EXIT: (
        "The program exited with this code and without an exception: look in its output, and in its source for calls "
        "that exit."
    ),
    FailureKind.HANG: (
        "Compare the stacks of the ranks: the others wait for the one that is in a different place. If a step is just "
        "slow, raise --hang-timeout or send heartbeats more often."
    ),
    FailureKind.TIMEOUT: ("A timed section ran longer than its limit: raise the limit, or find out what was slow."),
}


_AFTER_THE_LAST_LINE = (
    "The program had finished, but native code was still running when the interpreter shut down. With torch, wait for "
    "every collective, and call torch.distributed.destroy_process_group() last."
)


_NO_SUCH_PROGRAM = (
    "Check the name after -m: a module with dots and without .py, or a package with a __main__.py. Start the job in "
    "the directory that holds it, or install it for this interpreter, on every machine of the job."
)


_REFUSED_ARGUMENTS = (
    "Fix the program's arguments: it refused them, and its usage is in the last lines of its stderr. A restart cannot "
    "help."
)

_NOT_COMPILED = ("SyntaxError", "IndentationError", "TabError")
_NOT_PYTHON = "This does not look like Python: add --no-python to run the program as it is."
_PERHAPS_NOT_PYTHON = " If it is not Python, add --no-python."
_PYTHON_SUFFIXES = (".py", ".pyw", ".pyc", ".pyz")


def advice(kind: FailureKind | str, exception: str = "", where: str = "") -> str:
    """What to do about a failure of this kind, in one or two sentences; "" for an unknown kind.

    `exception` is the name of the exception's class, with or without its module. `where` is the line of the user's
    code.
    """
    try:
        known = FailureKind(kind)
    except ValueError:
        return ""
    if known is FailureKind.CRASH and where == INTERPRETER_END:
        return _AFTER_THE_LAST_LINE
    if known is FailureKind.EXCEPTION and where == MODULE_START:
        return _NO_SUCH_PROGRAM
    if known is FailureKind.EXIT and where == COMMAND_LINE:
        return _REFUSED_ARGUMENTS
    named = _BY_EXCEPTION.get(exception.rpartition(".")[2]) if known is FailureKind.EXCEPTION else None
    if named and exception in _NOT_COMPILED:
        return _about_text(named, where)
    return named or _BY_KIND[known].format(place=where or "the innermost frame of your own code")


def _about_text(usual: str, where: str) -> str:
    """The advice on a file that Python cannot compile: `usual`, unless its name says that it is not Python."""
    path = where.partition(" in ")[0].rpartition(":")[0]
    if not path or path.startswith("<"):
        return usual
    suffix = os.path.splitext(path)[1]
    if not suffix:
        return usual + _PERHAPS_NOT_PYTHON
    return usual if suffix in _PYTHON_SUFFIXES else _NOT_PYTHON
