"""The stacks of a process that does not answer: from py-spy if it is installed, and from the kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time

from holdfast.stacks.asking import GONE, STANDING, STATE, STATES, kernel_facts, process_state
from holdfast.stacks.parse import SOURCE

PY_SPY = "py-spy"

SPY_MAX_S = 5.0
"""The timeout of py-spy for a process, for all attempts together. One takes 20 ms."""

REASON_MAX_CHARS = 120

_THREADS = re.compile(r"^Thread ", re.MULTILINE)


def find_py_spy() -> str | None:
    """The path of py-spy: from PATH, or beside this interpreter."""
    return shutil.which(PY_SPY) or shutil.which(PY_SPY, path=os.path.dirname(sys.executable))


def spy(pid: int, timeout_s: float) -> str:
    """The stacks of a process as seen from outside; "" if it has ended.

    py-spy pauses the process only if it cannot do without, and never if the process is already stopped or stuck.
    """
    state = process_state(pid)
    if state in GONE:
        return ""
    remark = f"{STATE}{STATES[state]}\n" if state in STANDING else ""
    reason = "py-spy is not installed (install holdfast with its extra stacks)"
    py_spy = find_py_spy()
    deadline = time.monotonic() + min(max(timeout_s, 0.0), SPY_MAX_S)
    if py_spy is not None:
        for options in (["--nonblocking"], []) if state not in STANDING else (["--nonblocking"],):
            text, reason = _run([py_spy, "dump", "--full-filenames", *options, "--pid", str(pid)], deadline)
            if text:
                return f"{remark}{SOURCE}py-spy, because it did not answer\nProcess {pid}\n{text}"
            if time.monotonic() >= deadline:
                break
    if process_state(pid) in GONE:
        return ""
    return f"{STATE}no Python stack: {kernel_facts(pid)}\n{SOURCE}the kernel; {reason}\n"


def _run(command: list[str], deadline: float) -> tuple[str, str]:
    """The threads that py-spy prints, or the reason why it prints none."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and a number
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(0.0, deadline - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", "py-spy took too long"
    except OSError as error:
        return "", f"py-spy cannot be run: {error.strerror}"
    text = done.stdout.decode("utf-8", "backslashreplace")
    begin = _THREADS.search(text)  # skip the command line, which may contain anything
    if done.returncode == 0 and begin is not None:
        return text[begin.start() :], ""
    complaint = done.stderr.decode("utf-8", "backslashreplace").strip().partition("\n")[0]
    return "", f"py-spy: {complaint.removeprefix('Error: ')[:REASON_MAX_CHARS] or 'no Python threads'}"
