from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
from unittest.mock import ANY

import pytest

from holdfast.cli import command, doctor
from holdfast.cli.options import GROUPS
from holdfast.doctor.examination import CHECKS

QUICK = ("--only", "limits,kernel,files")
"""Topics that say nothing but good of a sane machine."""


@pytest.fixture
def tell(capsys):
    """Runs ``holdfast doctor`` in this process: the exit code, stdout and stderr."""

    def run(*words):
        try:
            code = command.main(["doctor", *words])
        except SystemExit as left:
            code = left.code
        return code, *capsys.readouterr()

    return run


def test_every_option_of_a_job_is_accepted_and_those_that_mean_nothing_are_ignored(tell):
    words = []
    for option in (option for options in GROUPS.values() for option in options):
        if option.dest not in {"rdzv_endpoint", "rdzv_backend", "rdzv_conf", "nproc_per_node", "local_addr", "log_dir"}:
            words += [option.spellings[-1]] if option.is_flag else [option.spellings[-1], "whatever"]
    assert "--max_restarts" in words
    plain = tell(*QUICK, "--json")
    assert tell(*QUICK, *words, "--rdzv-id", "foo", "-r", "3", "--json")[0] == plain[0] != 2
    assert tell(*QUICK, "--max-rest", "3", "--json")[0] != 2
    assert tell(*QUICK, "--nonsense") == (2, "", ANY)


def test_the_options_of_a_job_make_no_shortened_name_ambiguous(tell):
    for short in ("--nproc", "--n", "--log", "--loc", "--js"):
        words = [short] if short == "--js" else [short, "1"]
        assert tell(*QUICK, *words)[0] != 2
    assert "max-restarts" not in tell("--help")[1]


@pytest.fixture
def unused_port():
    """A port that somebody holds and nobody listens at."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def test_all_topics_are_told_and_the_last_line_counts(holdfast):
    ran = holdfast("doctor")
    assert ran.stderr == ""
    assert "\x1b" not in ran.stdout
    titles = [line for line in ran.stdout.splitlines() if line and not line.startswith(" ")]
    assert titles[:-1] == [topic for topic in CHECKS if topic != "etcd"]
    assert "problem" in titles[-1]
    assert ran.returncode == (0 if titles[-1].startswith("no problem found") else 1)


def test_json_is_a_list_with_stable_keys(tell):
    code, told, _ = tell("--json", *QUICK)
    assert code == 0
    found = json.loads(told)
    assert {tuple(one) for one in found} == {("topic", "check", "state", "what", "advice")}
    assert {one["topic"] for one in found} == {"limits", "kernel", "files"}


def test_a_terminal_has_colours_unless_its_user_wants_none():
    def shown_on_a_terminal(**environment):
        reader, terminal = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8", **environment}
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast", "doctor", "--only", "kernel"], stdout=terminal, env=environment
        ) as process:
            os.close(terminal)
            text = b""
            try:
                while piece := os.read(reader, 4096):
                    text += piece
            except OSError:  # the terminal's other end is closed
                pass
            assert process.wait(60) == 0
        os.close(reader)
        return text

    assert b"\x1b[32m" in shown_on_a_terminal()
    assert b"\x1b" not in shown_on_a_terminal(NO_COLOR="1")


def test_a_terminal_without_unicode_is_written_to_without(holdfast, tmp_path):
    ran = holdfast("doctor", "--only", "files", "--log-dir", "/proc/none", PYTHONIOENCODING="ascii")
    assert ran.returncode == 1
    assert "  x     the log directory, /proc/none" in ran.stdout
    assert "\n        -> " in ran.stdout


def test_a_problem_is_exit_code_1_and_warnings_are_none(tell, monkeypatch, unused_port):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    code, told, _ = tell("--only", "environment,kernel")
    assert (code, told.splitlines()[-1]) == (0, "no problem found, 1 warning (environment)")
    code, told, _ = tell("--only", "endpoint", "--endpoint", f"127.0.0.1:{unused_port}")
    assert (code, told.splitlines()[-1]) == (1, "1 problem (endpoint)")
    assert "Address already in use" in told


@pytest.mark.etcd
def test_who_asks_for_etcd_means_etcd_whatever_the_port(tell, unused_port):
    code, told, _ = tell("--only", "etcd", "--endpoint", f"127.0.0.1:{unused_port}")
    assert code == 1
    assert f"127.0.0.1 is reachable, but nothing listens on port {unused_port}" in told


def test_what_holdfast_run_finds_in_the_environment_is_found(tell, monkeypatch, unused_port):
    monkeypatch.setenv("PET_RDZV_ENDPOINT", f"127.0.0.1:{unused_port}")
    monkeypatch.setenv("PET_RDZV_CONF", "is_host=0")
    code, told, _ = tell("--only", "endpoint", "--json")
    (found,) = json.loads(told)
    assert (code, found["check"], found["state"]) == (0, "reachable", "note")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--what"], "unrecognized arguments: --what"),
        (["--backend", "static"], "invalid choice"),
        (["--endpoint", "node0:port"], "--endpoint 'node0:port': write HOST:PORT"),
        (["--rdzv-conf", "token"], "write KEY=VALUE"),
        (["--nproc-per-node", "none"], "write a number of workers"),
        (["--only", "names,nothing"], "'nothing': unknown topic"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tell, words, said):
    code, told, complaint = tell(*words)
    assert (code, told, complaint.count("\n")) == (2, "", 1)
    assert said in complaint
    assert complaint.startswith("holdfast doctor: error: ")


@pytest.mark.parametrize(
    ("endpoint", "backend"),
    [
        *(("node0", "c10d"), ("node0:29400", "c10d"), ("", "c10d")),
        *(("etcd0:2379", "etcd"), ("etcd0,etcd1", "etcd"), ("https://etcd0", "etcd")),
    ],
)
def test_the_backend_that_is_likely_meant(endpoint, backend):
    assert doctor.likely_backend(endpoint) == backend


def test_secrets_are_not_shown(tell, monkeypatch, unused_port):
    monkeypatch.setenv("HOLDFAST_TOKEN", "hunter2")
    monkeypatch.setenv("PET_RDZV_CONF", "token=hunter2")
    assert "hunter2" not in str(tell("--only", "endpoint,environment", "--endpoint", f"127.0.0.1:{unused_port}"))


def test_the_help_names_every_option_and_imports_little():
    text = doctor._parser().format_help()
    for option in ("--endpoint", "--backend", "--rdzv-conf", "--nproc-per-node", "--local-addr", "--log-dir", "--json"):
        assert option in text
    code = "import sys; from holdfast.cli.doctor import _parser; _parser().format_help(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"msgspec", "socket", "asyncio", "json"} & set(done.stdout.split())


def test_the_command_is_listed(capsys):
    assert command.main(["--help"]) == 0
    assert "\n  doctor  " in capsys.readouterr().out
