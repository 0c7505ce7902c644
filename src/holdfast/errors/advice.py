"""Advice on failures: one sentence for each kind."""

from __future__ import annotations

import os

from holdfast.errors.kind import COMMAND_LINE, INTERPRETER_END, MODULE_START, FailureKind

_BY_EXCEPTION = {
    "SyntaxError": "Correct the program's text: it cannot be compiled, so every restart would end the same.",
    "IndentationError": "Correct the indentation: the program cannot be compiled, so every restart would end the same.",
    "TabError": "Do not mix tabs and spaces: the program cannot be compiled, so every restart would end the same.",
    "ModuleNotFoundError": "Install the missing module for this interpreter, on every machine of the job.",
    "ImportError": "Check the installed versions on every machine: something that the program imports is not there.",
    "FileNotFoundError": "Check that the path exists on this machine, too: not every machine may see the same disks.",
    "PermissionError": "Check who may read and write this path, as the user that runs the workers.",
    "MemoryError": "Use a smaller batch or model, fewer workers on a machine, or a machine with more memory.",
    "OutOfMemoryError": "The accelerator's memory is full: use a smaller batch, checkpointing, or more devices.",
    "NoMainGuardError": 'Put the launch under `if __name__ == "__main__":`, since every worker imports this file.',
    "KeyboardInterrupt": "Nothing is wrong: somebody interrupted the program.",
}
"""Advice by exception class. It is more specific than the advice by kind."""

_BY_KIND = {
    FailureKind.EXCEPTION: "Read the traceback from its last line upwards: {place} is where to look first.",
    FailureKind.COMMUNICATION: (
        "Look at the other ranks and at the network first: this rank lost a peer and is rarely the cause itself."
    ),
    FailureKind.CRASH: (
        "Native code crashed: look at the Python stack of the thread that did, and check that the versions of the "
        "native libraries (driver, CUDA, extensions) fit each other."
    ),
    FailureKind.OUT_OF_MEMORY: (
        "Use less memory on each worker (batch, data loader workers, prefetching), run fewer workers on a machine, or "
        "raise the memory limit of the container or cgroup."
    ),
    FailureKind.KILLED: (
        "Find out who sent the signal: the scheduler (preemption, a limit of time or memory), the kernel, or a person; "
        "their logs say more."
    ),
    FailureKind.EXIT: (
        "The program left with this exit code and without an exception: search it, and what it wrote, for what ends it "
        "that way."
    ),
    FailureKind.HANG: (
        "Compare the stacks of the ranks: the one that stands elsewhere is what the others wait for. If a step only "
        "takes long, raise --hang-timeout or send heartbeats more often."
    ),
    FailureKind.TIMEOUT: ("A timed section ran longer than its limit: raise the limit, or find out what was slow."),
}


_AFTER_THE_LAST_LINE = (
    "The program itself had come to its end, and native code was still at work when the interpreter ended. With torch, "
    "wait for every collective, and call torch.distributed.destroy_process_group() as the last thing."
)


_NO_SUCH_PROGRAM = (
    "Check the name behind -m: a module with dots and without .py, or a package with a __main__.py. Start the job in "
    "the directory that holds it, or install it for this interpreter, on every machine of the job."
)


_REFUSED_ARGUMENTS = (
    "Correct the program's arguments: it refused them, and its usage is in the last lines of its stderr. Every restart "
    "would end the same."
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
