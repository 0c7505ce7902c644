"""``holdfast run``: run a job from a command line."""

from __future__ import annotations

import os
import sys

from holdfast.cli.exits import exit_code
from holdfast.cli.parser import PROG, parse_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

ERROR_VARIABLES = ("TORCHELASTIC_ERROR_FILE", "HOLDFAST_ERROR_HANDLER")
"""If one of these is set, our own failure must be recorded. The names are repeated here, because most jobs set neither
and need not import the code that handles them.
"""


def run(args: Namespace) -> None:
    """Run the job that `args` describes to its end.

    Raises:
        InputError: a value cannot be used.
        ChildFailedError: workers failed, and no restart is left.
        SignalException: this process was asked to stop, and has stopped its workers.
    """
    # Imported here, because parsing alone does not need them.
    from holdfast.cli.configuration import THREADS_VARIABLE, config_from_args
    from holdfast.cli.environment import as_given
    from holdfast.errors.tree import InputError
    from holdfast.launcher.launching import launch_agent

    had_threads = THREADS_VARIABLE in os.environ
    try:
        config, entrypoint, entrypoint_args = config_from_args(args)
        _remark(args, sets_threads=THREADS_VARIABLE in os.environ and not had_threads)
        launch_agent(config, entrypoint, entrypoint_args)
    except InputError as error:
        error.args = (as_given(str(error)),)
        raise


def main(args: Sequence[str] | None = None) -> None:
    """Run the job that a command line describes.

    With `args`, from a program, it raises what `run` raises; a command line that cannot be parsed raises SystemExit
    with the code 2. Without `args` it is the command: it takes the arguments of this process, and exits unless the job
    succeeded.
    """
    if args is None:
        code = exit_code(lambda: main(sys.argv[1:]), PROG)
        if code:
            sys.exit(code)
        return
    command_line = list(args)
    if any(map(os.environ.get, ERROR_VARIABLES)):
        from holdfast.errors.recording import record

        record(_parse_and_run)(command_line)
    else:
        _parse_and_run(command_line)


def _parse_and_run(command_line: list[str]) -> None:
    run(parse_args(command_line))


def _remark(args: Namespace, sets_threads: bool) -> None:
    is_about_gpus = args.numa_binding is not None or args.virtual_local_rank
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not is_about_gpus and not is_terminal:
        return
    from holdfast.cli.accelerators import gpu_count
    from holdfast.cli.remarks import hints, shortcomings
    from holdfast.errors.notice import notice

    for remark in shortcomings(args, gpu_count()) + (hints(args, sets_threads) if is_terminal else []):
        notice(remark)
