"""The job's token and etcd's password are in no message, event, report or worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.cli.configuration import rdzv_settings
from holdfast.errors.secret import hidden, hiding_secrets, shown, without_secrets
from holdfast.launcher.config import LaunchConfig
from holdfast.rendezvous.parameters import RendezvousParameters

SECRET = "kept-from-all"
SPACES = [char for char in map(chr, range(sys.maxunicode + 1)) if char.isspace()]

LOOKS = """
import json, os, sys
everything = dict(os.environ) | {"argv": sys.argv}
for name in ("environ", "cmdline"):
    everything[f"/{name}"] = open(f"/proc/self/{name}").read()
print(json.dumps(everything))
"""


def run(*words, **added):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "HOLDFAST_"))}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *map(str, words)],
        env=inherited | {name: str(value) for name, value in added.items()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


MEETING = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--nnodes", 1]


@pytest.mark.parametrize("how", [[], ["--run-path"], ["--run-path", "--start-method", "forkserver"]], ids=str)
@pytest.mark.parametrize(
    "given",
    [
        {"PET_RDZV_CONF": f"join_timeout=60,token={SECRET},last_call_timeout=1"},
        {"PET_RDZV_CONF": f"'token = {SECRET} ,password={SECRET}'"},
        {"PET_RDZV_CONF": f"last_call_timeout=1,\n\u2003token\x0b={SECRET}"},
        {"HOLDFAST_TOKEN": SECRET, "HOLDFAST_TOKEN_FILE": f"/nowhere/{SECRET}"},
        {},
    ],
    ids=["among settings", "quoted", "in a line of its own", "the token's own variables", "an argument"],
)
def test_no_worker_and_no_record_of_a_run_has_it(given, how, tmp_path):
    (tmp_path / "looks.py").write_text(LOOKS)
    conf = [] if given else ["--rdzv-conf", f"token={SECRET}"]
    ran = run("run", *MEETING, *conf, *how, "--log-dir", tmp_path / "logs", tmp_path / "looks.py", **given)
    assert ran.returncode == 0, ran.stderr
    assert "PATH" in json.loads(ran.stdout)
    assert SECRET not in ran.stdout + ran.stderr
    if "join_timeout" in given.get("PET_RDZV_CONF", ""):
        assert json.loads(ran.stdout)["PET_RDZV_CONF"] == "join_timeout=60,last_call_timeout=1"
    files = [path for path in (tmp_path / "logs").rglob("*") if path.is_file()]
    assert [path.name for path in files if SECRET in path.read_text()] == []
    assert "events.jsonl" in [path.name for path in files]
    assert SECRET not in run("report", next((tmp_path / "logs").iterdir()), "--json").stdout


@pytest.mark.parametrize(
    "conf", [f"token={SECRET},x", f"token:{SECRET}", f"timeout,password={SECRET}", f"PassWord {SECRET}"]
)
@pytest.mark.parametrize("command", ["run", "forget", "doctor"])
def test_a_malformed_setting_is_refused_without_showing_it(command, conf):
    endpoint = [] if command == "forget" else ["--rdzv-endpoint" if command == "run" else "--endpoint", "127.0.0.1:1"]
    for words, added in (["--rdzv-conf", conf], {}), ([], {"PET_RDZV_CONF": conf}):
        last = {"run": [__file__], "forget": ["job"], "doctor": []}[command]
        ran = run(command, *words, *endpoint, *last, **added)
        assert ran.returncode == 2
        assert ran.stderr.count("\n") == 1
        assert "write KEY=VALUE pairs" in ran.stderr
        assert SECRET not in ran.stdout + ran.stderr
        assert ("PET_RDZV_CONF=(not shown" in ran.stderr) == (bool(added) and command == "run")


@pytest.mark.parametrize(
    "words",
    [
        ["run", f"--rdzv-cnf=token={SECRET}", __file__],
        ["run", f"--rdzv-=token={SECRET}", __file__],
        ["doctor", "--rdzv-cnf", f"token={SECRET}"],
        ["doctor", "--token", SECRET],
        ["forget", "job", f"password={SECRET}"],
        ["stacks", "a", f"token={SECRET}"],
    ],
    ids=str,
)
def test_a_mistyped_option_does_not_show_it_either(words):
    ran = run(*words)
    assert ran.returncode == 2
    assert SECRET not in ran.stdout + ran.stderr
    assert "not shown" in ran.stderr


def test_what_is_no_secret_is_quoted_as_ever():
    assert shown("timeout=6x") == "'timeout=6x'"
    assert hidden("unrecognized arguments: --tokenizer fast") == "unrecognized arguments: --tokenizer fast"


def test_configurations_can_be_printed():
    settings = {"token": SECRET, "password": SECRET, "timeout": 5}
    config = LaunchConfig(1, 1, 1, rdzv_configs=settings)
    assert config.rdzv_configs["token"] == SECRET
    for printed in (repr(config), repr(RendezvousParameters("c10d", "", "run", 1, 1, **settings))):
        assert SECRET not in printed
        assert "timeout" in printed
    assert hiding_secrets(settings)["timeout"] == 5


@given(st.lists(st.sampled_from(["a=1", f"token={SECRET}", SECRET, f" password ={SECRET}", "", "b=", "=c"])))
def test_nothing_of_a_secret_stays_among_settings(items):
    """What is no pair belongs to the secret before it, if there is one there."""
    text = ",".join(["a=1", *items])
    kept = without_secrets(text)
    assert f"={SECRET}" not in kept
    assert all(item in text.split(",") for item in kept.split(","))
    if SECRET not in text:
        assert kept == text


_space = st.text(st.sampled_from(SPACES), max_size=2)
_pair = st.tuples(st.sampled_from([("token", SECRET), ("password", SECRET), ("a", "1"), ("b", "2")]), _space, _space)


@given(st.lists(_pair, min_size=1), st.sampled_from(["", "'", '"']))
@example([(("a", "1"), "", ""), (("token", SECRET), "\n", "")], "")
@example([(("password", SECRET), "", "\u2003")], "'")
def test_the_parser_knows_no_secret_that_is_not_taken_out(pairs, quote):
    """Whatever white space a template leaves: what is read as a secret is taken out, and all else stays."""
    items = (f"{before}{key}{after}={after}{value}{before}" for (key, value), before, after in pairs)
    text = f"{quote}{','.join(items)}{quote}"
    settings = rdzv_settings(text)
    kept = without_secrets(text)
    assert SECRET not in kept
    assert rdzv_settings(kept) == {key: value for key, value in settings.items() if value != SECRET}


@pytest.mark.parametrize("key", ["'token'", "Token", "\"'token", "tok\u2003en"])
def test_what_may_be_meant_as_a_secret_is_taken_out_as_well(key):
    assert without_secrets(f"a=1,{key}={SECRET},b=2") == "a=1,b=2"
