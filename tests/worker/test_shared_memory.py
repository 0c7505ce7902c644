"""The page of a worker: a file that it makes and maps."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import pytest

from holdfast.worker import shared_memory
from holdfast.worker.shared_memory import (
    BEATS,
    LAYOUT,
    PAGE_BYTES,
    REASON_BYTES,
    REASON_MAX_BYTES,
    REASON_OFFSET,
    STEP,
    VERSION,
    Page,
)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "page")


def numbers(path):
    with open(path, "rb") as file:
        return struct.unpack("<7q", file.read(56))


def test_a_page_is_complete_private_and_in_memory(path):
    Page.make(path)
    status = os.stat(path)
    assert (status.st_size, status.st_mode & 0o777) == (PAGE_BYTES, 0o600)
    assert status.st_blocks > 0, "a page that is only reserved would end the program where there is no space"
    assert (numbers(path)[VERSION], numbers(path)[STEP]) == (LAYOUT, -1)


def test_a_store_to_memory_is_seen_in_the_file_and_the_other_way(path):
    page = Page.make(path)
    page.numbers[BEATS] = 7
    assert numbers(path)[BEATS] == 7
    with open(path, "r+b") as file:
        file.seek(shared_memory.STOP_NS * shared_memory.NUMBER_BYTES)
        file.write(struct.pack("<q", 99))
    assert page.numbers[shared_memory.STOP_NS] == 99


def test_a_page_that_is_there_is_opened_again_and_keeps_its_numbers(path):
    Page.make(path).numbers[BEATS] = 3
    assert Page.make(path).numbers[BEATS] == 3


def test_no_child_inherits_the_file(path):
    page = Page.make(path)
    show = f"import os; print([fd for fd in os.listdir('/proc/self/fd') if fd > '2' and os.path.exists({path!r})])"
    shown = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout
    assert len(eval(shown)) == 1, "that of listdir alone"
    assert page.numbers[VERSION] == LAYOUT


@pytest.mark.parametrize("length", [-1, 0, 5, REASON_MAX_BYTES, REASON_MAX_BYTES + 1, 1 << 62])
def test_a_reason_is_bounded_whatever_its_length_says(path, length):
    page = Page.make(path)
    with open(path, "r+b") as file:
        file.seek(REASON_OFFSET)
        file.write(b"x" * (PAGE_BYTES - REASON_OFFSET))
    page.numbers[REASON_BYTES] = length
    assert page.reason == "x" * min(max(length, 0), REASON_MAX_BYTES)


def test_a_reason_that_is_no_text_is_shown(path):
    page = Page.make(path)
    with open(path, "r+b") as file:
        file.seek(REASON_OFFSET)
        file.write(b"a\xffb")
    page.numbers[REASON_BYTES] = 3
    assert page.reason == "a\ufffdb"


def test_a_private_page_has_no_file(tmp_path):
    page = Page.private()
    page.numbers[BEATS] = 1
    assert (page.numbers[BEATS], page.reason, os.listdir(tmp_path)) == (1, "", [])


def test_a_directory_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Page.make(str(tmp_path / "none" / "page"))


@pytest.mark.root
def test_where_there_is_no_space_it_is_an_error_and_not_the_end_of_the_program(tmp_path):
    """In a namespace of its own, on a file system of two pages, one of them for a file that takes all that is left."""
    script = f"""
import os
from holdfast.worker.shared_memory import Page
place = {str(tmp_path)!r}
try:
    with open(place + "/full", "wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
except OSError:
    pass
try:
    Page.make(place + "/page")
except OSError as error:
    print(error.strerror)
"""
    mount = f'mount -t tmpfs -o size=8k none {tmp_path} && exec {sys.executable} -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "No space left on device\n"), done.stderr
