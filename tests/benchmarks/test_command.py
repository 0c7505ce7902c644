"""`python -m benchmarks`: what it measures, writes and refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest
from benchmarks.results import read, to_text


@pytest.fixture
def bench(root):
    def run(*words):
        command = [sys.executable, "-m", "benchmarks", *map(str, words)]
        return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=200, check=False)

    return run


@pytest.fixture
def kept(results, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(to_text(results))
    return path


@pytest.mark.torch
def test_a_scenario_alone_is_measured_shown_and_written(bench, tmp_path):
    ran = bench("limits", "--quick", "--json", tmp_path / "json", "--page", tmp_path / "page")
    assert ran.returncode == 0, ran.stderr
    assert "pidfd wake-up" in ran.stdout
    assert "QUICK run" in ran.stdout
    assert "[1/1] limits" in ran.stderr
    assert "on two quiet cores" in ran.stderr
    found = read(str(tmp_path / "json"))
    assert found.is_quick
    assert len(found.measurements) == 4
    assert all(sample > 0 for each in found.measurements for (sample,) in next(iter(each.samples.values())))
    assert "<title>holdfast beside torchrun</title>" in (tmp_path / "page").read_text()


@pytest.mark.torch
@pytest.mark.parametrize("words", [("limits",), ("limits", "--quick")])
def test_only_a_whole_run_is_kept(words, bench, root):
    kept = root / "benchmarks" / "results" / "latest.json"
    before = kept.read_bytes()
    ran = bench(*words, "--keep")
    assert ran.returncode == 0, ran.stderr
    assert "not kept" in ran.stderr
    assert kept.read_bytes() == before


def test_results_are_shown_again_without_measuring(bench, kept, results, tmp_path):
    (tmp_path / "text").write_text("<!-- benchmark: headlines -->\n<!-- benchmark: end -->\n")
    ran = bench("--from", kept, "--json", tmp_path / "json", "--page", tmp_path / "page", "--readme", tmp_path / "text")
    assert ran.returncode == 1, ran.stderr  # one of the targets is missed
    assert ran.stderr == ""
    assert ran.stdout.endswith("\n1 target MISSED\n")
    assert (tmp_path / "json").read_text() == to_text(results)
    assert "a job of 2" in (tmp_path / "page").read_text()
    assert "| a job of 2, ms | 90 |" in (tmp_path / "text").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "no scenario nonsense; there are: limits, job"),
        (["--from", "/nowhere/file"], "/nowhere/file: No such file or directory"),
        (["--from", "README.md"], "README.md: this is not a file of results"),
        (["--from", "KEPT", "limits"], "goes with none of"),
        (["--from", "KEPT", "--keep"], "goes with none of"),
        (["--from", "KEPT", "--readme", "LICENSE"], "LICENSE: there is no <!-- benchmark"),
        (["--from", "KEPT", "--page", "/nowhere/page"], "/nowhere/page: cannot be written: /nowhere is no directory"),
        (["limits", "--json", "/"], "/: cannot be written"),
        (["--from", "KEPT", "--readme", "/nowhere/text"], "/nowhere/text: No such file or directory"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, said, bench, kept):
    ran = bench(*[str(kept) if word == "KEPT" else word for word in words])
    assert ran.returncode == 2
    assert said in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr
