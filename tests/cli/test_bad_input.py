"""A wrong value is one line that names where it was given, the value and what would be right; the exit code is 2."""

from __future__ import annotations

import contextlib
import http.server
import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.cli import config_from_args, parse_args, running
from holdfast.cli.exits import exit_code
from holdfast.cli.options import GROUPS
from holdfast.rendezvous import RendezvousParameters, rendezvous_handler_registry

IS_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 11))"
OPTIONS = [option for options in GROUPS.values() for option in options]


def assert_refused(ended, start):
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"holdfast run: error: {start}")


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ("--nnodes 0", "--nnodes '0': "),
        ("--nnodes 3:1", "--nnodes '3:1': "),
        ("--nnodes x", "--nnodes 'x': "),
        ("--nnodes 1:2:3", "--nnodes '1:2:3': "),
        ("--nproc-per-node 0", "--nproc-per-node '0': "),
        ("--nproc-per-node -1", "--nproc-per-node '-1': "),
        ("--nproc-per-node many", "--nproc-per-node 'many': "),
        ("--rdzv-backend nonsense", "--rdzv-backend 'nonsense': "),
        ("--nnodes 2 --rdzv-endpoint a:b", "--rdzv-endpoint 'a:b': "),
        ("--nnodes 2 --rdzv-endpoint ::::", "--rdzv-endpoint '::::': :::: is no IPv6 address; "),
        ("--nnodes 2 --rdzv-backend c10d --rdzv-id x --rdzv-endpoint ::::", "--rdzv-endpoint '::::': "),
        ("--rdzv-conf a", "--rdzv-conf 'a': "),
        ("--standalone --rdzv-conf a", "--rdzv-conf 'a': "),
        ("--rdzv-conf join_timeout=soon", "--rdzv-conf join_timeout=soon: "),
        ("--standalone --rdzv-conf join_timeout=soon", "--rdzv-conf join_timeout=soon: "),
        ("--rdzv-backend c10d --rdzv-conf is_host=perhaps", "--rdzv-conf is_host=perhaps: "),
        ("--nnodes 2 --rdzv-conf keep_alive_max_attempt=1", "--rdzv-conf keep_alive_max_attempt=1: "),
        ("--event-log-handler nonsense", "--event-log-handler 'nonsense': "),
        ("--signals-to-handle SIGX", "--signals-to-handle 'SIGX': "),
        ("--start-method nonsense", "--start-method 'nonsense': "),
        ("--numa-binding nonsense", "--numa-binding 'nonsense': "),
        ("--logs-specs nonsense", "--logs-specs 'nonsense': "),
        ("--log-dir /proc/nowhere", "--log-dir '/proc/nowhere': "),
        ("--max-restarts -1", "--max-restarts -1: "),
        ("--max-restarts x", "--max-restarts 'x': "),
        ("--monitor-interval 0", "--monitor-interval 0: "),
        ("--shutdown-timeout -1", "--shutdown-timeout -1: "),
        ("--local-ranks-filter x", "--local-ranks-filter 'x': "),
        (f"--local-ranks-filter {'9' * 5_000}", "--local-ranks-filter '999"),
        (f"--nnodes 2 --rdzv-endpoint a:{'9' * 5_000}", "--rdzv-endpoint 'a:999"),
        (f"-r {'9' * 5_000}:1", "--redirects '999"),
        ("-r 4", "--redirects '4': "),
        ("-t 0:x", "--tee '0:x': "),
        ("--no-python -m", "--no-python with --module "),
        ("--master-port 70000", "--master-port 70000: "),
        ("--node-rank 1", "--node-rank 1: "),
        ("--nnodes 2 --node-rank -1", "--node-rank -1: "),
        ("--standalone --nnodes 2", "--nnodes '2': "),
        ("--local-addr nosuchhost.invalid", "--local-addr 'nosuchhost.invalid': unknown host name"),
        ("--nonsense", "unrecognized arguments: --nonsense"),
    ],
)
def test_a_flag(options, start, holdfast, script):
    assert_refused(holdfast("run", *options.split(), script()), start)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ("--rdzv-conf keep_alive_interval=40000", "--rdzv-conf keep_alive_interval=40000,keep_alive_max_attempt=3: "),
        ("--rdzv-conf keep_alive_interval=0.03", "--rdzv-conf keep_alive_interval=0.03,keep_alive_max_attempt=3: "),
        ("--rdzv-conf keep_alive_max_attempt=1000000", "--rdzv-conf keep_alive_interval=1,keep_alive_max_attempt=1000"),
        (
            "--rdzv-conf last_call_timeout=0.1 --local-addr nosuchhost.invalid",
            "--local-addr 'nosuchhost.invalid': unknown host name",
        ),
        (f"--rdzv-id {'x' * 2000}", f"--rdzv-id '{'x' * 40}'...: it has 2000 characters; "),
    ],
)
def test_a_flag_of_a_job_on_several_nodes(options, start, holdfast, script):
    place = ("--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:29431")
    assert_refused(holdfast("run", *place, *options.split(), script()), start)


@pytest.mark.parametrize("backend", ["c10d", "etcd"])
def test_an_empty_id_of_a_job_on_several_nodes(backend, holdfast, script):
    words = ("--nnodes", "1:2", "--rdzv-backend", backend, "--rdzv-endpoint", "127.0.0.1:29431", "--rdzv-id", "")
    assert_refused(holdfast("run", *words, script()), "--rdzv-id '': the id is empty; give all nodes the same id")


@pytest.mark.parametrize("join_timeout", [1, 30])
def test_an_endpoint_here_whose_port_a_web_server_has(holdfast, script, join_timeout):
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        place = ("--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}")
        ended = holdfast("run", *place, "--rdzv-conf", f"join_timeout={join_timeout}", script())
        server.shutdown()
    assert_refused(
        ended, f"--rdzv-endpoint 127.0.0.1:{port}: port {port} of this machine is used by something else (a web"
    )


@pytest.mark.parametrize(
    ("command", "endpoint"),
    [
        ("run --nnodes 2 --node-rank 0 --rdzv-endpoint", "bob:hunter2pw@127.0.0.1:1"),
        ("run --nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint", "bob:hunter2pw@127.0.0.1:1"),
        ("run --nnodes 1:2 --rdzv-backend etcd --rdzv-endpoint", "https://bob:hunter2pw@127.0.0.1:1"),
        ("run --nnodes 1:2 --rdzv-backend etcd --rdzv-endpoint", "https://bob:hunter2pw,hunter2pw@127.0.0.1:1"),
        ("run --nnodes 1:2 --rdzv-backend etcd --rdzv-endpoint", "https://bob:hunter2pw://@127.0.0.1:1"),
        ("run --nnodes 1:2 --rdzv-backend etcd --rdzv-endpoint", "ftp://127.0.0.1,bob:hunter2pw@127.0.0.1:1"),
        ("run --rdzv-backend etcd --rdzv-endpoint", "https://bob:hunter2pw@127.0.0.1:1"),
        ("forget job7 --endpoint", "https://bob:hunter2pw,hunter2pw@127.0.0.1:1"),
        ("doctor --backend etcd --endpoint", "https://bob:hunter2pw,hunter2pw@127.0.0.1:1"),
        ("doctor --endpoint", "bob:hunter2pw@127.0.0.1:1"),
    ],
)
def test_a_password_in_the_endpoint_is_refused_and_not_shown(command, endpoint, holdfast, script):
    words = command.split()
    ended = holdfast(*words, endpoint, *([script()] if words[0] == "run" else []))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert "hunter2pw" not in ended.stderr
    assert "user=NAME,password=" in ended.stderr


@pytest.mark.parametrize("options", ["", "--standalone", "--rdzv-endpoint 127.0.0.1:29431"])
def test_a_setting_that_is_unknown_is_named_and_the_job_runs(options, holdfast, script):
    ran = holdfast("run", *options.split(), "--rdzv-conf", "join_timeut=5", script("print('it ran')"))
    assert (ran.returncode, ran.stdout) == (0, "it ran\n")
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.endswith("such a setting; did you mean join_timeout?\n")


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("PET_STANDALONE", "true", "'true'"),
        ("PET_MODULE", "", "''"),
        ("PET_MAX_RESTARTS", "x", "'x'"),
        ("PET_MAX_RESTARTS", "-1", "-1"),
        ("PET_NNODES", "x", "'x'"),
        ("PET_NPROC_PER_NODE", "many", "'many'"),
        ("PET_RDZV_BACKEND", "nonsense", "'nonsense'"),
        ("PET_START_METHOD", "nonsense", "'nonsense'"),
        ("PET_EVENT_LOG_HANDLER", "nonsense", "'nonsense'"),
        ("PET_SIGNALS_TO_HANDLE", "SIGX", "'SIGX'"),
        ("PET_REDIRECTS", "4", "'4'"),
        ("PET_LOG_DIR", "/proc/nowhere", "'/proc/nowhere'"),
        ("PET_MASTER_PORT", "70000", "70000"),
        ("PYTHON_EXEC", "/nowhere", "'/nowhere'"),
    ],
)
def test_a_variable(name, text, shown, holdfast, script):
    assert_refused(holdfast("run", script(), **{name: text}), f"{name}={shown}: ")


@pytest.mark.parametrize("word", ["gpu", "xpu"])
def test_processors_that_are_not_there(word, holdfast, script):
    assert_refused(
        holdfast("run", "--nproc-per-node", word, script(), CUDA_VISIBLE_DEVICES="", ZE_AFFINITY_MASK=""),
        f"--nproc-per-node '{word}': no {word} found on this machine",
    )


def test_a_script(holdfast, tmp_path):
    assert_refused(holdfast("run"), "the following arguments are required: script")
    assert_refused(holdfast("run", "nowhere.py"), "script 'nowhere.py': no such file")
    assert_refused(holdfast("run", tmp_path), f"script {str(tmp_path)!r}: a directory without __main__.py")
    assert_refused(holdfast("run", "--no-python", "nowhere"), "script 'nowhere': no such program")


@pytest.fixture
def place():
    """A directory that every user can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.mark.root
def test_what_another_user_may_not_touch(place):
    """Root may touch everything, so another user runs it, with a Python and a copy of ours that it can get at."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None or subprocess.run([python, "-c", IS_NEW_ENOUGH], check=False).returncode:
        pytest.skip("needs a Python from 3.11 on in /usr/bin")
    shutil.copytree(Path(running.__file__).parent.parent, place / "holdfast")
    secret, readable, closed = place / "secret.py", place / "readable.py", place / "closed"
    secret.touch(0o600)
    readable.touch(0o644)
    closed.mkdir(0o755)

    def run(*words):
        return subprocess.run(
            [python, "-m", "holdfast", "run", *map(str, words)],
            env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
            user=65534,
            cwd=place,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert_refused(run(secret), f"script {str(secret)!r}: not readable by this user")
    assert_refused(run("--log-dir", closed, readable), f"--log-dir {str(closed)!r}: not writable")


SPELLINGS = [spelling for option in OPTIONS for spelling in option.spellings]
VALUES = [
    *("1", "2", "0", "-1", "-0.5", "nan", "inf", "1e999", "x", "3:1", "1:2", "1:2:3", "0:1", "0:4", "a,b", "0,1"),
    *("a", "a=1", "backend=1", "self=1", "timeout=x", "rank=x", "host:99999", "[::1]:1", "gpu", "auto", "spawn"),
    *("c10d", "static", "null", "console", "SIGTERM", "SIGX", "/dev/null", "/proc/x", "train.py", "--x=y", "-h"),
    *("--", "-", "'", "é", "\udcff", "\x1b[31m"),
]
words = st.sampled_from([*SPELLINGS, *VALUES, "", " ", "\n", "9" * 30]) | st.text(
    st.characters(exclude_characters="\0"), max_size=8
)
options = st.tuples(st.sampled_from(SPELLINGS), words)


def prepare(command_line):
    """All that comes before the first worker."""
    config, _, _ = config_from_args(parse_args(command_line))
    parameters = RendezvousParameters(
        config.rdzv_backend,
        config.rdzv_endpoint,
        config.run_id,
        config.min_nodes,
        config.max_nodes,
        config.local_addr,
        **config.rdzv_configs,
    )
    rendezvous_handler_registry.create_handler(parameters).shutdown()


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(options | st.tuples(words), max_size=5),
    environment=st.dictionaries(
        st.sampled_from([f"PET_{option.dest.upper()}" for option in OPTIONS]), st.sampled_from(VALUES), max_size=3
    ),
    has_script=st.booleans(),
)
def test_no_command_line_ends_in_a_traceback(tmp_path, parts, environment, has_script):
    """It is a configuration, or help, or one line on stderr and the exit code 2."""
    script = tmp_path / "script.py"
    script.touch()
    command_line = [word for part in parts for word in part] + [str(script)] * has_script
    err, code = io.StringIO(), None
    with (
        mock.patch.dict(os.environ, {**environment, "TMPDIR": str(tmp_path)}),
        mock.patch.object(sys, "stderr", err),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.chdir(tmp_path),
    ):
        try:
            code = exit_code(lambda: prepare(command_line), "holdfast run")
        except SystemExit as left:
            code = left.code
    if code == 0:
        assert err.getvalue() == ""
    else:
        assert code == 2
        assert out.getvalue() == ""
        assert err.getvalue().startswith("holdfast run: error: ")
        assert len(err.getvalue().splitlines()) == 1
