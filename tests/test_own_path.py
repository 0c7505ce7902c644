"""The module search path of ``python -m holdfast``, and of the functions that it runs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fresh_python import run_fresh


def test_the_first_directory_becomes_the_last_and_functions_have_it_first_again():
    done = run_fresh("""
        import sys
        from holdfast import own_path
        before = ["/work", "/lib", "/site"]
        assert own_path.programs_path(before) == before
        sys.path[:] = before
        own_path.put_directory_last()
        assert sys.path == ["/lib", "/site", "/work"]
        assert own_path.programs_path(list(sys.path)) == before
        assert own_path.programs_path([*sys.path, "/added"]) == [*sys.path, "/added"], "somebody has changed it since"
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", [[], ["/only"]])
def test_a_path_of_one_or_none_stays(path):
    done = run_fresh(f"""
        import sys
        from holdfast import own_path
        sys.path[:] = {path}
        own_path.put_directory_last()
        assert sys.path == {path} == own_path.programs_path(list(sys.path))
    """)
    assert done.returncode == 0, done.stderr


def test_a_safe_path_has_no_such_directory():
    code = (
        "import sys; from holdfast import own_path as o; b = sys.path[:]; o.put_directory_last(); print(b == sys.path)"
    )
    shown = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "True\n"


def test_a_module_of_the_users_does_not_hide_one_that_holdfast_needs(tmp_path):
    (tmp_path / "select.py").write_text("raise SystemExit('that of the user')\n")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "--log-dir", "logs", "--no-python", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
