"""Starts sets of workers as it is asked to, cold or from one template; see `warm_sets`.

A request is a line of JSON on standard input: the words behind ``python -u``, whether the set is to be warm, how many
workers it has, where their logs go, and the modules to import. The answer is a line with their exit codes.
"""

from __future__ import annotations

import json
import os
import sys

AGENTS = {"WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "set"}
"""What workers have from an agent, as far as it matters to a set; and their ranks."""


class Starter:
    def __init__(self):
        self._template = None

    def run(self, words, warm, nproc, logs, modules):
        from holdfast.processes import DefaultLogsSpecs, Std, start_processes

        if warm:
            self._prepare(words, modules)

        def before_start(context):
            context.template = self._template if warm else None

        ranks = range(nproc)
        result = start_processes(
            "set",
            sys.executable,
            dict.fromkeys(ranks, ("-u", *words)),
            {rank: {**AGENTS, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in ranks},
            DefaultLogsSpecs(log_dir=logs, redirects=Std.ALL),
            before_start=before_start,
        ).wait()
        return [result.failures[rank].exitcode if rank in result.failures else 0 for rank in ranks]

    def _prepare(self, words, modules):
        """For the modules that are given one template does for all programs."""
        from holdfast.warm.template import Template

        if self._template is None or modules is None:
            self.close()
            self._template = Template([sys.executable, "-u", *words], modules)
            self._template.start()
        if not self._template.is_ready():
            raise RuntimeError("there is no template")

    def close(self):
        if self._template is not None:
            self._template.close()


def main():
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    starter = Starter()
    try:
        for line in requests:
            answers.write(json.dumps(starter.run(*json.loads(line))) + "\n")
            answers.flush()
    finally:
        starter.close()


if __name__ == "__main__":
    main()
