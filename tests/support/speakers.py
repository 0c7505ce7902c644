"""Functions and programs that write to their standard streams, and an agent with a console of a test's choice."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

AGENT = """
import json, os, sys, time
from holdfast.processes import DefaultLogsSpecs, start_processes
arguments = json.loads(sys.argv[1])
exec(arguments["first"])
context = start_processes(
    "set", sys.executable, {rank: ("-c", script) for rank, script in enumerate(arguments["scripts"])},
    {rank: {} for rank in range(len(arguments["scripts"]))},
    DefaultLogsSpecs(log_dir="/dev/null", local_ranks_filter=set(arguments["shown"])),
    shutdown_timeout=60,
)
result = None
def finish(**more):
    global result
    result = result or context.wait()
    told = {
        "failures": {rank: [failure.exitcode, failure.stderr] for rank, failure in result.failures.items()},
        "terminated": result.terminated,
        **more,
    }
    with open(arguments["result"], "w") as file:
        json.dump(told, file)
exec(arguments["then"])
"""


class Agent:
    """A process that runs Python scripts as its workers, with its own standard streams, and says how they ended."""

    def __init__(self, result_path, scripts, *, first="", then="finish()", shown=(), **streams) -> None:
        self._result_path = str(result_path)
        options = {"first": first, "then": then, "shown": list(shown)}
        arguments = {"scripts": scripts, "result": self._result_path, **options}
        self.process = subprocess.Popen([sys.executable, "-c", AGENT, json.dumps(arguments)], **streams)

    def result(self):
        """How it ended, waited for."""
        assert self.process.wait(60) == 0
        with open(self._result_path) as file:
            return json.load(file)


def say_and_leave(text, code):
    os.write(2, text.encode())
    os._exit(code)


def descriptors():
    """The descriptors of this process, and what each is."""
    links = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            links[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    return links
