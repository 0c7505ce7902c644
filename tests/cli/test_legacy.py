from __future__ import annotations

import sys

import pytest

from holdfast.cli import config_from_args, get_use_env, legacy
from holdfast.cli import parse_args as parse_run_args
from holdfast.errors import InputError


def test_the_script_gets_its_local_rank(script):
    path = script()
    _, program, args = config_from_args(legacy.parse_args([path, "--lr", "1"]))
    assert (program, args) == (sys.executable, ["-u", path, "--local-rank=${local_rank}", "--lr", "1"])


@pytest.mark.parametrize("flag", ["--use-env", "--use_env"])
def test_it_does_not_if_it_reads_the_environment(script, flag):
    path = script()
    assert config_from_args(legacy.parse_args([flag, path, "x"]))[2] == ["-u", path, "x"]


def test_a_module_and_a_function_get_it_behind_their_name(script):
    path = script()
    assert config_from_args(legacy.parse_args(["-m", "json.tool", "x"]))[2][-2:] == ["--local-rank=${local_rank}", "x"]
    assert config_from_args(legacy.parse_args(["--run-path", path, "x"]))[2] == [
        path,
        "--local-rank=${local_rank}",
        "x",
    ]


def test_a_program_that_is_not_python_must_not_get_it():
    with pytest.raises(InputError, match=r"^--no-python: .*add --use-env$") as raised:
        legacy.launch(legacy.parse_args(["--no-python", "true"]))
    assert isinstance(raised.value, ValueError)


def test_a_program_that_is_not_python_runs_with_use_env():
    legacy.launch(legacy.parse_args(["--no-python", "--use-env", "true"]))


def test_the_workers_find_their_ranks(script, capfd):
    with pytest.warns(FutureWarning, match="read LOCAL_RANK from the environment"):
        legacy.main(["--nproc-per-node", "2", script("import sys; print(sys.argv[1:])"), "x"])
    assert sorted(capfd.readouterr().out.splitlines()) == ["['--local-rank=0', 'x']", "['--local-rank=1', 'x']"]


def test_as_a_command_it_exits_like_holdfast_run(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["launch", "--nnodes", "x", script()])
    with pytest.warns(FutureWarning), pytest.raises(SystemExit) as left:
        legacy.main()
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("holdfast run: error: --nnodes 'x': ")


def test_other_command_lines_leave_it_to_the_environment():
    assert get_use_env(parse_run_args(["x"]))
    assert not get_use_env(legacy.parse_args(["x"]))
