from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.processes.redirects import redirect, redirect_stderr, redirect_stdout


def run(script, *args):
    """What a script with its own descriptors 1 and 2 wrote to them."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    result = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)], capture_output=True, check=False, timeout=120, env=buffered
    )
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode(), result.stderr.decode()


EVERY_KIND = """
import ctypes, os, sys
from holdfast.processes.redirects import redirect_{std} as redirected
libc = ctypes.CDLL(None)
c_stream = ctypes.c_void_p.in_dll(libc, "{std}")

def speak(when):
    print("python", when, file=sys.{std})
    libc.fputs(f"c {{when}}\\n".encode(), c_stream)

speak("before")
with redirected(sys.argv[1]):
    speak("inside")
    sys.{std}.flush()
    os.system("echo child inside >&{fd}")
speak("after")
"""


@pytest.mark.parametrize(("std", "fd"), [("stdout", 1), ("stderr", 2)])
def test_what_python_c_and_children_print_goes_to_the_file_and_the_rest_does_not(tmp_path, std, fd):
    file = tmp_path / "file"
    shown = dict(zip(("stdout", "stderr"), run(EVERY_KIND.format(std=std, fd=fd), file), strict=True))
    assert sorted(file.read_text().splitlines()) == ["c inside", "child inside", "python inside"]
    assert sorted(shown.pop(std).splitlines()) == ["c after", "c before", "python after", "python before"]
    assert list(shown.values()) == [""]


def test_blocks_nest_and_are_undone_by_exceptions(tmp_path):
    script = """
import sys
from holdfast.processes.redirects import redirect_stdout
outer, inner = sys.argv[1:]
try:
    with redirect_stdout(outer):
        print("outer 1")
        try:
            with redirect_stdout(inner):
                print("inner")
                raise KeyError
        except KeyError:
            print("outer 2")
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("shown")
"""
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    assert run(script, outer, inner)[0] == "shown\n"
    assert outer.read_text() == "outer 1\nouter 2\n"
    assert inner.read_text() == "inner\n"


def test_both_streams_into_one_file_do_not_overwrite_each_other(tmp_path):
    script = """
import os, sys
from holdfast.processes.redirects import redirect_stdout, redirect_stderr
with redirect_stdout(sys.argv[1]), redirect_stderr(sys.argv[1]):
    for _ in range(3):
        os.write(1, b"out\\n")
        os.write(2, b"err\\n")
"""
    file = tmp_path / "file"
    assert run(script, file) == ("", "")
    assert file.read_text() == "out\nerr\n" * 3


def test_the_file_is_emptied_first(tmp_path):
    file = tmp_path / "file"
    file.write_text("a longer text from before\n")
    run("import sys; from holdfast.processes.redirects import *\nwith redirect_stdout(sys.argv[1]): print('new')", file)
    assert file.read_text() == "new\n"


@pytest.mark.parametrize("replacement", ["None", "io.StringIO()", "Odd()", "closed"])
def test_a_replaced_or_missing_or_closed_stream_does_not_matter(tmp_path, replacement):
    script = """
import io, os, sys
from holdfast.processes.redirects import redirect_stdout
class Odd: flush = property()
closed = open(os.devnull)
closed.close()
print("held back before")
sys.stdout = {}
with redirect_stdout(sys.argv[1]):
    sys.__stdout__.write("through the first stream\\n")
    os.system("echo inside")
os.write(1, b"after\\n")
sys.stdout = sys.__stdout__
"""
    file = tmp_path / "file"
    assert run(script.format(replacement), file)[0] == "held back before\nafter\n"
    assert file.read_text() == "inside\nthrough the first stream\n"


def test_a_closed_descriptor_is_closed_again_afterwards(tmp_path):
    script = """
import os, sys
from holdfast.processes.redirects import redirect_stdout
os.close(1)
with redirect_stdout(sys.argv[1]):
    os.system("echo inside")
try:
    os.fstat(1)
except OSError:
    pass
else:
    sys.exit("still open")
sys.stdout = sys.__stdout__ = None
"""
    file = tmp_path / "file"
    run(script, file)
    assert file.read_text() == "inside\n"


def test_no_descriptor_is_leaked(tmp_path):
    before = os.listdir("/proc/self/fd")
    for _ in range(20):
        with redirect_stdout(str(tmp_path / "out")), redirect_stderr(str(tmp_path / "err")):
            pass
        with pytest.raises(FileNotFoundError), redirect_stdout(str(tmp_path / "missing" / "out")):
            pytest.fail("the block ran")
        with pytest.raises(KeyError), redirect_stdout(str(tmp_path / "out")):
            raise KeyError
    assert os.listdir("/proc/self/fd") == before


def test_an_unknown_stream_is_a_value_error(tmp_path):
    with pytest.raises(ValueError, match="unknown standard stream 'stdin'; expected one of 'stdout', 'stderr'"):
        redirect("stdin", str(tmp_path / "file")).__enter__()
    assert not os.path.exists(tmp_path / "file")
