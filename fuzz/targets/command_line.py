"""The command line and the environment of `holdfast run`, up to the configuration of a job.

Promises: a bad value is an `InputError`, or leaves with exit code 2 and one line on stderr; never anything else. What
is accepted is a configuration.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from typing import TYPE_CHECKING
from unittest import mock

from fuzz.oracles import check_one_line, promise
from fuzz.shapes import JSON, LINES, WORDS
from fuzz.target import Target
from holdfast.agent.uninterruptible import TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT, timeout_from_environment
from holdfast.cli.configuration import config_from_args
from holdfast.cli.environment import variable
from holdfast.cli.exits import BAD_INPUT
from holdfast.cli.options import GROUPS
from holdfast.cli.parser import get_args_parser, parse_args
from holdfast.errors.tree import InputError
from holdfast.logger import LEVEL_VARIABLE, log_level
from holdfast.processes.interruption import SIGNALS_VARIABLE, signals_to_handle
from holdfast.rendezvous.elastic_settings import ElasticSettings
from holdfast.rendezvous.parameters import RendezvousParameters
from holdfast.rendezvous.static import StaticRendezvous, parse_endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.launcher.config import LaunchConfig

ERROR_FACTOR = 12
"""How much longer than the input an error may be: it quotes a character as up to ten."""

ERROR_EXTRA_CHARS = 3_000

SCRIPT = __file__
PORT_MAX = 65_535

_OPTIONS = [option for options in GROUPS.values() for option in options]
VARIABLES = (
    *(variable(option.dest) for option in _OPTIONS if option.has_variable),
    *("SLURM_PROCID", "COLUMNS", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHON_EXEC", "HOLDFAST_TOKEN"),
    *(
        SIGNALS_VARIABLE,
        TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT,
        LEVEL_VARIABLE,
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
    ),
)
"""What the environment may say. Values of others are left out of inputs."""

TOKEN = "0123456789abcdef"


def _understood(words: Sequence[str], size: int) -> LaunchConfig | None:
    """The configuration that the words mean; None if they are refused as they should be."""
    said, shown = io.StringIO(), io.StringIO()
    limit_chars = ERROR_FACTOR * size + ERROR_EXTRA_CHARS
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
            args = parse_args(words)
    except SystemExit as end:
        if not end.code:
            promise(shown.getvalue().startswith("usage:"), "it leaves with 0 and shows no help")
            return None
        promise(end.code == BAD_INPUT, f"exit code {end.code}")
        promise(said.getvalue().endswith("\n"), "the last line has no end")
        check_one_line(said.getvalue()[:-1], "what is said on stderr", limit_chars)
        return None
    except InputError as error:
        _check_error(error, limit_chars)
        return None
    with tempfile.TemporaryDirectory() as directory:
        if args.log_dir is not None:
            args.log_dir = directory  # wherever it was to be
        try:
            return config_from_args(args)[0]
        except InputError as error:
            _check_error(error, limit_chars)
            return None


def _check_error(error: InputError, limit_chars: int) -> None:
    check_one_line(" ".join(str(error).split()), "an error", limit_chars)


def _check_meeting(config: LaunchConfig, size: int) -> None:
    """What a backend makes of its settings."""
    try:
        params = RendezvousParameters(
            config.rdzv_backend,
            config.rdzv_endpoint,
            config.run_id,
            config.min_nodes,
            config.max_nodes,
            config.local_addr,
            **config.rdzv_configs,
        )
        if config.rdzv_backend == "static":
            StaticRendezvous.from_parameters(params)
        elif config.rdzv_backend in ("c10d", "etcd"):
            with mock.patch("holdfast.logger.Logger.warning"):
                ElasticSettings(params, {"HOLDFAST_TOKEN": TOKEN})
    except InputError as error:
        _check_error(error, ERROR_FACTOR * size + ERROR_EXTRA_CHARS)


def _run(data: bytes) -> None:
    words = data.decode("utf-8", "surrogateescape").split("\0")
    with mock.patch.dict(os.environ):
        config = _understood(words, len(data))
        if config is not None:
            _check_meeting(config, len(data))


def _run_environment(data: bytes) -> None:
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(given, dict):
        return
    known = {name: str(value) for name, value in given.items() if name in VARIABLES}
    fit = {name: value for name, value in known.items() if "\0" not in value and _is_encodable(value)}
    with mock.patch.dict(os.environ, fit):
        config = _understood([SCRIPT], len(data))
        if config is not None:
            _check_meeting(config, len(data))
        more = (_help,) if "COLUMNS" in fit else ()  # nothing else of it depends on the environment, and it is slow
        for ask in (timeout_from_environment, signals_to_handle, log_level, *more):
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    ask()
            except InputError as error:
                _check_error(error, ERROR_FACTOR * len(data) + ERROR_EXTRA_CHARS)


def _help() -> None:
    get_args_parser().format_help()


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _run_endpoint(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape").replace("\0", "")  # which no argument can hold
    try:
        host, port = parse_endpoint(text, 29_500)
    except InputError as error:
        _check_error(error, ERROR_FACTOR * len(data) + ERROR_EXTRA_CHARS)
        return
    promise(0 <= port <= PORT_MAX, f"a port that is none: {port}")
    promise(host and not set(host) & set("[] \t\n"), f"a host that is none: {host!r}")
    bracketed = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    promise(parse_endpoint(bracketed, 1) == (host, port), "an endpoint is another one when it is read again")


def _seeds() -> list[bytes]:
    lines = (
        ["--standalone", "--nproc-per-node", "2", SCRIPT],
        ["--nnodes=2:4", "--nproc_per_node", "1", "--max-restarts", "3", SCRIPT, "--lr", "0.1"],
        ["--rdzv-backend", "c10d", "--rdzv-endpoint", "node0:29400", "--rdzv-id", "job7", "--nnodes", "1:2", SCRIPT],
        ["--rdzv-backend", "etcd", "--rdzv-endpoint", "a:2379,b:2379", "--rdzv-conf", "join_timeout=9", SCRIPT],
        ["--nnodes", "2", "--node-rank", "1", "--master-addr", "fd00::1", "--master-port", "29500", SCRIPT],
        ["-m", "package.train", "-t", "0:1,1:3", "-r", "3", "--log-dir", "x", "--local-ranks-filter", "0,1"],
        ["--no-python", "true"],
        ["--run-path", SCRIPT],
        ["--help"],
        *(
            [f"{option.names[-1]}={value}", SCRIPT]
            for option in _OPTIONS
            if option.metavar is not None
            for value in ("1", "x")
        ),
        *([option.names[-1], SCRIPT] for option in _OPTIONS if option.metavar is None),
    )
    return ["\0".join(words).encode() for words in lines]


def _environment_seeds() -> list[bytes]:
    each = [{name: value} for name in VARIABLES for value in ("1",)]
    some = {"PET_NNODES": "1:2", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "[::1]:29400", "PET_RDZV_ID": "a"}
    return [json.dumps(given).encode() for given in (*each, some)]


def _endpoint_seeds() -> list[bytes]:
    return [b"node0", b"node0:29500", b"[fd00::1]:29500", b"fd00::1", b"10.0.0.1:1", b"[fe80::1%eth0]:2", b"", b"a:0"]


TARGETS = (
    Target("command-line", _run, _seeds, WORDS, short_runs=40),
    Target("environment", _run_environment, _environment_seeds, JSON, short_runs=40),
    Target("endpoint", _run_endpoint, _endpoint_seeds, LINES),
)
