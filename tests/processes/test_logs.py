from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import threading

import pytest
from costly_imports import COSTLY_IMPORTS
from installed_plugin import install_plugin

from holdfast.errors.tree import InputError
from holdfast.processes.logs import DefaultLogsSpecs, LogsDest, LogsSpecs, find_logs_specs
from holdfast.processes.std import Std

IMPORTS_TORCH = True


def envs(ranks=2, run_id="job", restart_count=0):
    return {
        rank: {"TORCHELASTIC_RUN_ID": run_id, "TORCHELASTIC_RESTART_COUNT": str(restart_count)} for rank in range(ranks)
    }


def below(root, paths):
    """The paths without the part that is random."""
    return {rank: path and os.path.join(*os.path.relpath(path, root).split(os.sep)[1:]) for rank, path in paths.items()}


@pytest.mark.parametrize("module", ["std", "logs", "redirects", "tail"])
def test_importing_costs_no_heavy_module(module):
    script = (
        f"import sys; before = set(sys.modules); import holdfast.processes.{module}; print(*set(sys.modules) - before)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert f"holdfast.processes.{module}" in result.stdout.split()
    assert not COSTLY_IMPORTS & set(result.stdout.split())


def test_making_directories_costs_no_heavy_module(tmp_path):
    script = """
import sys
from holdfast.processes.logs import DefaultLogsSpecs, find_logs_specs
before = set(sys.modules)
for log_dir in (None, sys.argv[1]):
    find_logs_specs("default")(log_dir).reify({0: {}})
print(*set(sys.modules) - before)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "logs")]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=env)
    assert not COSTLY_IMPORTS & set(result.stdout.split())


def test_layout(tmp_path):
    specs = DefaultLogsSpecs(str(tmp_path / "logs"), redirects=Std.ALL)
    environments = envs(2, restart_count=3)
    dest = specs.reify(environments)

    assert specs.root_log_dir == str(tmp_path / "logs")
    [run_dir] = (tmp_path / "logs").iterdir()
    assert run_dir.name.startswith("job_")
    assert len(run_dir.name) > len("job_")
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    attempt = run_dir / "attempt_3"
    assert dest == LogsDest(
        stdouts={0: f"{attempt}/0/stdout.log", 1: f"{attempt}/1/stdout.log"},
        stderrs={0: f"{attempt}/0/stderr.log", 1: f"{attempt}/1/stderr.log"},
        error_files={0: f"{attempt}/0/error.json", 1: f"{attempt}/1/error.json"},
        filtered_stdout=f"{attempt}/filtered_stdout.log",
        filtered_stderr=f"{attempt}/filtered_stderr.log",
    )
    assert {rank: env["TORCHELASTIC_ERROR_FILE"] for rank, env in environments.items()} == dest.error_files
    assert sorted(os.listdir(attempt)) == ["0", "1"]
    assert os.listdir(attempt / "0") == []


OUT, ERR, NULL = "attempt_0/{}/stdout.log", "attempt_0/{}/stderr.log", os.devnull

ROUTES = {
    # redirects, tee, filter: stdouts, stderrs, ranks of tee_stdouts, of tee_stderrs
    "nothing": (Std.NONE, Std.NONE, None, ["", ""], ["", ""], [], []),
    "redirect one stream": (Std.OUT, Std.NONE, None, [OUT, OUT], ["", ""], [], []),
    "tee one stream": (Std.NONE, Std.ERR, None, ["", ""], [ERR, ERR], [], [0, 1]),
    "redirect one, tee the other": (Std.OUT, Std.ERR, None, [OUT, OUT], [ERR, ERR], [], [0, 1]),
    "rank by rank": ({0: Std.OUT}, {1: Std.ALL}, None, [OUT, OUT], ["", ERR], [1], [1]),
    "a filter hides the others": (Std.NONE, Std.NONE, {0}, ["", NULL], ["", NULL], [], []),
    "a filter leaves files alone": (Std.ALL, Std.NONE, {1}, [OUT, OUT], [ERR, ERR], [], []),
    "a filter limits the tee": (Std.NONE, Std.ALL, {1}, [OUT, OUT], [ERR, ERR], [1], [1]),
    "a filter with a partial tee": (Std.NONE, {0: Std.OUT}, {1}, [OUT, ""], [NULL, ""], [], []),
    "an empty filter is none": (Std.NONE, Std.OUT, set(), [OUT, OUT], ["", ""], [0, 1], []),
}


@pytest.mark.parametrize("route", ROUTES)
def test_where_each_stream_goes(tmp_path, route):
    redirects, tee, local_ranks_filter, out, err, tee_out, tee_err = ROUTES[route]
    dest = DefaultLogsSpecs(str(tmp_path), redirects, tee, local_ranks_filter).reify(envs())

    def resolved(paths):
        return {rank: path if path == NULL else below(tmp_path, {0: path})[0] for rank, path in paths.items()}

    assert resolved(dest.stdouts) == {rank: path.format(rank) for rank, path in enumerate(out)}
    assert resolved(dest.stderrs) == {rank: path.format(rank) for rank, path in enumerate(err)}
    assert dest.tee_stdouts == {rank: dest.stdouts[rank] for rank in tee_out}
    assert dest.tee_stderrs == {rank: dest.stderrs[rank] for rank in tee_err}


@pytest.mark.torch
@pytest.mark.parametrize("route", ROUTES)
def test_torch_sends_each_stream_to_the_same_place(tmp_path, route):
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs as TorchLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import Std as TorchStd

    def for_torch(streams):
        if isinstance(streams, dict):
            return {rank: TorchStd(std) for rank, std in streams.items()}
        return TorchStd(streams)

    redirects, tee = map(for_torch, ROUTES[route][:2])
    local_ranks_filter = ROUTES[route][2]
    ours, theirs = (
        specs(log_dir=str(tmp_path), redirects=redirects, tee=tee, local_ranks_filter=local_ranks_filter).reify(envs())
        for specs in (DefaultLogsSpecs, TorchLogsSpecs)
    )
    for name in ("stdouts", "stderrs", "tee_stdouts", "tee_stderrs", "error_files"):
        assert below(tmp_path, getattr(ours, name)) == below(tmp_path, getattr(theirs, name))


def test_no_log_dir_is_a_fresh_private_one_in_the_temporary_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    roots = {DefaultLogsSpecs().root_log_dir, DefaultLogsSpecs("").root_log_dir}
    assert len(roots) == 2
    for root in roots:
        assert os.path.dirname(root) == str(tmp_path)
        assert os.path.basename(root).startswith("torchelastic_")
        assert stat.S_IMODE(os.stat(root).st_mode) == 0o700


def test_an_unusable_temporary_directory_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    monkeypatch.setenv("TEMP", str(tmp_path))
    assert os.path.dirname(DefaultLogsSpecs().root_log_dir) == str(tmp_path)


def test_dev_null_means_no_files_at_all():
    specs = DefaultLogsSpecs(os.devnull, redirects=Std.ALL, tee=Std.ALL)
    environments = envs()
    dest = specs.reify(environments)
    null = {0: os.devnull, 1: os.devnull}
    assert specs.root_log_dir == os.devnull
    assert dest == LogsDest({0: "", 1: ""}, {0: "", 1: ""}, null, null, null, os.devnull, os.devnull)
    assert [env["TORCHELASTIC_ERROR_FILE"] for env in environments.values()] == ["", ""]


def test_dev_null_does_not_undo_the_filter():
    dest = DefaultLogsSpecs(os.devnull, local_ranks_filter={1}).reify(envs())
    assert dest.stdouts == dest.stderrs == {0: os.devnull, 1: ""}


def test_a_relative_directory_still_holds_after_a_change_of_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    specs = DefaultLogsSpecs("logs/deep", Std.OUT)
    dest = specs.reify(envs(1))
    assert specs.root_log_dir == "logs/deep"
    monkeypatch.chdir("/")
    assert os.path.isdir(os.path.dirname(dest.stdouts[0]))
    assert dest.error_files[0].startswith(str(tmp_path))


def test_no_attempt_touches_the_logs_of_another(tmp_path):
    specs = DefaultLogsSpecs(str(tmp_path), Std.OUT)
    kept = []
    for restart_count in (0, 0, 1, 0, 1):
        path = specs.reify(envs(1, restart_count=restart_count)).stdouts[0]
        with open(path, "a", encoding="utf-8") as file:
            assert file.tell() == 0, "it is another's"
            file.write(path)
        kept.append(path)
    assert [path.split(os.sep)[-3] for path in kept] == [
        "attempt_0",
        "attempt_0.1",
        "attempt_1",
        "attempt_0.2",
        "attempt_1.1",
    ]
    for path in kept:
        with open(path, encoding="utf-8") as file:
            assert file.read() == path
    assert len(os.listdir(tmp_path)) == 1


def test_attempts_at_the_same_moment_get_directories_of_their_own(tmp_path):
    specs = DefaultLogsSpecs(str(tmp_path), Std.OUT)
    specs.reify(envs(1))
    together = threading.Barrier(8)
    found = []

    def attempt():
        together.wait()
        found.extend(specs.reify(envs(1)).stdouts[0] for _ in range(20))

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 160


def test_a_run_directory_that_was_tidied_away_is_made_again(tmp_path):
    specs = DefaultLogsSpecs(str(tmp_path / "logs"), Std.OUT)
    first = specs.reify(envs(1)).stdouts[0]
    os.removedirs(os.path.dirname(first))
    second = specs.reify(envs(1)).stdouts[0]
    assert second != first
    assert second == f"{specs.run_dir}/attempt_0/0/stdout.log"
    assert os.path.dirname(specs.run_dir) == str(tmp_path / "logs")
    assert os.path.isdir(os.path.dirname(second))


@pytest.mark.parametrize(
    "run_id", ["a/b", "../../escape", "..", "", "with space\n", "$(id)`*", "日本語" * 200, "x" * 5000, "\0\x1b[2J"]
)
def test_any_run_id_is_one_safe_directory_name(tmp_path, run_id):
    dest = DefaultLogsSpecs(str(tmp_path), Std.OUT).reify(envs(1, run_id=run_id))
    [name] = os.listdir(tmp_path)
    assert os.path.isdir(os.path.dirname(dest.stdouts[0]))
    assert not set(name) & set("/ \n$()`*\0\x1b[")


def test_environments_without_run_id_and_restart_count(tmp_path):
    dest = DefaultLogsSpecs(str(tmp_path)).reify({0: {}})
    assert below(tmp_path, dest.error_files) == {0: "attempt_0/0/error.json"}


def test_local_ranks_with_gaps(tmp_path):
    dest = DefaultLogsSpecs(str(tmp_path), {5: Std.OUT}).reify({3: {}, 5: {}})
    assert below(tmp_path, dest.stdouts) == {3: "", 5: "attempt_0/5/stdout.log"}


def test_a_directory_that_cannot_be_made_is_an_input_error_with_path_and_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot make the log directory .*file': File exists") as raised:
        DefaultLogsSpecs(str(tmp_path / "file"))
    assert isinstance(raised.value, NotADirectoryError)
    with pytest.raises(InputError, match=r"file/below': Not a directory"):
        DefaultLogsSpecs(str(tmp_path / "file" / "below"))
    specs = DefaultLogsSpecs(str(tmp_path / "logs"))
    (tmp_path / "logs").rmdir()
    (tmp_path / "logs").write_text("")
    with pytest.raises(InputError, match=r"logs/job_.*: Not a directory"):
        specs.reify(envs())


def test_an_attempt_that_finds_no_place_for_its_files_does_without_them(tmp_path, caplog):
    specs = DefaultLogsSpecs(str(tmp_path / "logs"), Std.ALL, Std.ERR)
    first = specs.reify(envs())
    root, away = tmp_path / "logs", tmp_path / "logs.away"
    root.rename(away)
    root.touch()  # as on a full disk, nothing can be made below it
    without = envs()
    assert specs.reify(without) == DefaultLogsSpecs(os.devnull, Std.ALL, Std.ERR).reify(envs())
    assert {env["TORCHELASTIC_ERROR_FILE"] for env in without.values()} == {""}
    [record] = caplog.records
    assert record.message.startswith(f"no log files for this attempt: cannot make '{root}/job_")
    root.unlink()
    away.rename(root)
    assert specs.reify(envs()).stdouts[0] == first.stdouts[0].replace("attempt_0", "attempt_0.1")


def test_an_attempt_with_room_for_directories_but_not_for_files_does_without_them(tmp_path):
    specs = DefaultLogsSpecs(str(tmp_path / "logs"), Std.ALL)
    specs.reify(envs())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # a file cannot be opened, a directory can be made
    try:
        dest = specs.reify(envs())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert dest.stdouts == {0: "", 1: ""}
    assert sorted(os.listdir(f"{specs.run_dir}/attempt_0.1")) == ["0", "1"]


def test_specs_are_equal_when_they_ask_for_the_same(tmp_path):
    def specs(name="a", **options):
        return DefaultLogsSpecs(str(tmp_path / name), **options)

    assert specs() == specs()
    for other in (specs("b"), specs(redirects=Std.OUT), specs(tee=Std.OUT), specs(local_ranks_filter={0}), "a"):
        assert specs() != other
    assert str(tmp_path / "a") in repr(specs(tee={0: Std.ERR}))
    assert "Std.ERR" in repr(specs(tee={0: Std.ERR}))


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        LogsSpecs()


def test_dest_shows_and_compares_its_fields():
    assert LogsDest() == LogsDest()
    assert LogsDest({0: "a"}) != LogsDest({0: "b"})
    assert LogsDest(filtered_stderr="x") != LogsDest()
    assert repr(LogsDest({0: "a"}, filtered_stdout="f")).startswith("LogsDest(stdouts={0: 'a'}, stderrs={}")
    one, two = LogsDest(), LogsDest()
    one.stdouts[0] = "a"
    assert two.stdouts == {}


PLUGIN = """
from holdfast.processes.logs import DefaultLogsSpecs
class Ours(DefaultLogsSpecs): pass
class Theirs(DefaultLogsSpecs): pass
"""


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """An installed distribution with entry points in both groups."""
    entry_points = (
        "[holdfast.logs_specs]\nours = logs_plugin_for_test:Ours\nboth = logs_plugin_for_test:Ours\n"
        "broken = logs_plugin_for_test_missing:Nothing\n"
        "[torchrun.logs_specs]\ntheirs = logs_plugin_for_test:Theirs\nboth = logs_plugin_for_test:Theirs\n"
    )
    install_plugin(tmp_path, "logs_plugin_for_test", PLUGIN, entry_points)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("logs_plugin_for_test", None)


def test_specs_are_found_by_name_in_both_groups(plugins):
    assert find_logs_specs(None) is find_logs_specs("default") is DefaultLogsSpecs
    assert find_logs_specs("ours").__name__ == "Ours"
    assert find_logs_specs("theirs").__name__ == "Theirs"
    assert find_logs_specs("both").__name__ == "Ours"


def test_an_unknown_name_lists_what_there_is(plugins):
    with pytest.raises(
        InputError,
        match=r"--logs-specs 'nope': unknown name; choose from both, broken, default, ours, theirs ",
    ):
        find_logs_specs("nope")


def test_specs_that_cannot_be_loaded_say_why(plugins):
    with pytest.raises(InputError, match=r"--logs-specs 'broken' .*cannot be loaded: ModuleNotFoundError"):
        find_logs_specs("broken")
