"""Build each worker's command from the script on the command line."""

from __future__ import annotations

import os
import sys

from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any

LOCAL_RANK_ARGUMENT = "--local-rank=${local_rank}"
"""What a script of the older command line gets; the agent replaces the variable."""

PYTHON_VARIABLE = "PYTHON_EXEC"
"""The environment variable that names another interpreter than ours."""


def get_use_env(args: Namespace) -> bool:
    """Whether workers learn their local rank from the environment alone. Only the older command line has a choice."""
    return bool(getattr(args, "use_env", True))


def worker_command(args: Namespace) -> tuple[Callable[..., None] | str, list[str]]:
    """What a worker runs, a program or a function, and its arguments.

    Raises:
        InputError: the program or script is missing or cannot be run.
    """
    script, script_args = args.training_script, list(args.training_script_args)
    if not get_use_env(args):
        script_args.insert(0, LOCAL_RANK_ARGUMENT)
    if args.run_path:
        _check_script(script)
        return run_script_path, [script, *script_args]
    if args.no_python:
        if args.module:
            raise InputError(f"--no-python with --module {script!r}: a module needs Python; remove one of the two")
        _check_program(script, f"script {script!r}")
        return script, script_args
    python = os.environ.get(PYTHON_VARIABLE)
    if python is not None:
        # Do not check the script: another interpreter has its own rules for what a script is and where it is.
        _check_program(python, f"{PYTHON_VARIABLE}={python!r}")
    elif args.module:
        _check_module(script)
    else:
        _check_script(script)
    return python or sys.executable, ["-u", *(["-m"] if args.module else []), script, *script_args]


def run_script_path(training_script: str, *training_script_args: str) -> None:
    """Run a script in this interpreter as if Python had been started with it."""
    import runpy

    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


# The worker's process does not need our command line, which may hold a secret.
run_script_path.has_own_arguments = True  # type: ignore[attr-defined]  # a mark on a function


def _check_script(path: str) -> None:
    # Python accepts more than files: `-` for stdin, and options of its own. With `$`, each worker may have its own
    # script.
    if path.startswith("-") or "$" in path:
        return
    if os.path.isdir(path):
        if not any(os.path.exists(os.path.join(path, name)) for name in ("__main__.py", "__main__.pyc")):
            raise InputError(f"script {path!r}: a directory without __main__.py; name the file to run")
    elif not os.path.exists(path):
        raise InputError(f"script {path!r}: no such file (from {os.getcwd()})")
    elif not os.access(path, os.R_OK):
        raise InputError(f"script {path!r}: not readable by this user")


def _check_module(name: str) -> None:
    """Refuse a module that no worker can find. Packages are not imported here: only the worker knows what they hold."""
    # Such an interpreter looks in other places than its workers. With `$`, each worker may have its own module.
    if sys.flags.isolated or sys.flags.no_site or sys.flags.ignore_environment or "$" in name:
        return
    first, dot, _ = name.partition(".")
    try:
        spec = _found_module(first)
    except Exception:  # noqa: BLE001 - a finder of somebody else's that fails; the worker will say how
        return
    if spec is None:
        raise InputError(
            f"-m {name!r}: there is no such module (from {os.getcwd()}, or installed for {sys.executable}); "
            "check the name, or start the job in the directory that holds it"
        )
    if dot and spec.submodule_search_locations is None:
        hint = f"; write -m {first}" if name == f"{first}.py" else ""
        raise InputError(f"-m {name!r}: {first} is a module and not a package{hint}")
    try:
        lacks_main = _lacks_main(name, spec)
    except Exception:  # noqa: BLE001 - as above
        return
    if lacks_main:
        raise InputError(
            f"-m {name!r}: a package without __main__.py; name a module of the package, such as -m {name}.train"
        )


def _lacks_main(name: str, spec: Any) -> bool:
    """Whether a module is a package that cannot be run. `spec` is that of the first part of its name."""
    parts = [*name.split("."), "__main__"]
    for end in range(1, len(parts)):
        if spec is None or spec.submodule_search_locations is None:
            return False
        # A package may add directories of its name to its path when it is imported.
        others = [os.path.join(directory, *parts[:end]) for directory in (os.getcwd(), *sys.path)]
        spec = _found_module(".".join(parts[: end + 1]), [*spec.submodule_search_locations, *others])
    return spec is None


def _found_module(name: str, within: list[str] | None = None) -> Any:
    """The spec of a module as a worker finds it: in the directories of its package, `within`.

    By default the module has no package, and is in the working directory or where this process would find it.
    """
    from _frozen_importlib_external import PathFinder

    found = PathFinder.find_spec(name, [os.getcwd(), *sys.path] if within is None else within)
    others = (finder.find_spec(name, within) for finder in sys.meta_path)
    return found or next(filter(None, others), None)


def _check_program(name: str, given: str) -> None:
    here = os.sep in name
    paths = [name] if here else [os.path.join(directory, name) for directory in os.get_exec_path()]
    files = [path for path in paths if os.path.isfile(path)]
    if not files:
        where = (
            f"from {os.getcwd()}" if here else "not in PATH; for a program in this directory write ./ before its name"
        )
        raise InputError(f"{given}: no such program ({where})")
    if not any(os.access(path, os.X_OK) for path in files):
        raise InputError(f"{given}: {files[0]} not executable; run chmod +x, or remove --no-python")
