"""What torchrun makes of a command line: answers in JSON, a line for each line asked.

A question is {"words": [...], "environment": {...}, "config": bool}. With "config" the answer is about the
configuration, otherwise about the parsed namespace.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings

FIELDS = (
    *("min_nodes", "max_nodes", "nproc_per_node", "run_id", "role", "rdzv_endpoint", "rdzv_backend", "rdzv_configs"),
    *("max_restarts", "monitor_interval", "start_method", "log_line_prefix_template", "local_addr"),
    *("event_log_handler", "signals_to_handle", "duplicate_stdout_filters", "duplicate_stderr_filters"),
    *("virtual_local_rank", "shutdown_timeout"),
)


def namespace(run, words):
    return vars(run.parse_args(words))


def configuration(run, words):
    args = run.parse_args(words)
    args.master_port = 29500 if args.master_port is None else args.master_port  # as its `run` does before
    config, entrypoint, entrypoint_args = run.config_from_args(args)
    return {
        "config": {name: getattr(config, name) for name in FIELDS},
        "entrypoint": entrypoint if isinstance(entrypoint, str) else entrypoint.__name__,
        "args": entrypoint_args,
    }


def answer(run, question):
    for name in [name for name in os.environ if name.startswith("PET_")]:
        del os.environ[name]
    os.environ.update(question["environment"])
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            ask = configuration if question["config"] else namespace
            return {"value": ask(run, question["words"])}
        except SystemExit as left:
            return {"left": left.code, "said": err.getvalue()}
        except Exception as error:
            return {"raised": type(error).__name__}


def main():
    warnings.simplefilter("ignore")
    from torch.distributed import run

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(answer(run, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
