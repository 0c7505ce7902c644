"""The standard descriptors of a program that was started without some of them."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
kept = os.dup(1)
os.set_inheritable(kept, False)
given = [os.fstat(fd).st_ino for fd in range(3)]
closed = [int(word) for word in sys.argv[1:]]
for fd in closed:
    os.close(fd)
from holdfast.processes.standard_streams import open_missing
open_missing()
nowhere = os.stat(os.devnull).st_rdev
for fd in range(3):
    assert os.get_inheritable(fd), fd
    if fd in closed:
        assert os.fstat(fd).st_rdev == nowhere, fd
    else:
        assert os.fstat(fd).st_ino == given[fd], fd
    if fd in closed:
        os.write(fd, b"x"), os.read(fd, 1)
os.write(kept, b"%d" % os.pipe()[0])
"""


@pytest.mark.parametrize("closed", [c for n in range(4) for c in itertools.combinations(range(3), n)], ids=str)
def test_missing_descriptors_lead_nowhere_and_the_others_stay(closed):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, closed)],
        check=False,
        stdin=subprocess.PIPE,
        capture_output=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 2, "a pipe of ours has no standard number"
