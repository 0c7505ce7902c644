"""Files where somebody else may have planted what we expect to be a file."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading

import pytest

from holdfast import files
from holdfast.files import (
    NotRegularError,
    is_name,
    is_regular,
    open_regular,
    other_owner,
    read_regular,
    write_whole,
)


@pytest.fixture
def precious(tmp_path):
    """A file of the user's that nobody may reach through another name."""
    path = tmp_path / "home" / "authorized_keys"
    path.parent.mkdir()
    path.write_text("precious")
    return path


class TestWriting:
    def test_the_file_is_whole_and_private_and_alone(self, tmp_path):
        write_whole(str(tmp_path / "f"), b"data")
        assert (tmp_path / "f").read_bytes() == b"data"
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600
        assert os.listdir(tmp_path) == ["f"]

    def test_a_mode_is_said(self, tmp_path):
        before = os.umask(0o022)
        try:
            write_whole(str(tmp_path / "f"), b"", mode=0o666)
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o644

    def test_a_name_without_a_directory_is_in_the_current_one(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_whole("f", b"x", durable=True)
        assert (tmp_path / "f").read_bytes() == b"x"

    def test_a_link_is_replaced_and_not_followed(self, tmp_path, precious):
        (tmp_path / "f").symlink_to(precious)
        write_whole(str(tmp_path / "f"), b"new")
        assert precious.read_text() == "precious"
        assert not (tmp_path / "f").is_symlink()
        assert (tmp_path / "f").read_bytes() == b"new"

    def test_a_draft_that_somebody_planted_is_not_opened(self, tmp_path, precious, monkeypatch):
        """Even if they guessed its name."""
        monkeypatch.setattr(files.os, "urandom", bytes)
        (tmp_path / f".holdfast-{'00' * files.DRAFT_RANDOM_BYTES}.part").symlink_to(precious)
        with pytest.raises(FileExistsError):
            write_whole(str(tmp_path / "f"), b"new")
        assert precious.read_text() == "precious"

    def test_a_directory_that_is_exchanged_meanwhile_changes_nothing(self, tmp_path, precious, monkeypatch):
        """The file goes to the directory that was opened, not to where its name leads by then."""
        directory = tmp_path / "run"
        directory.mkdir()
        write = os.write

        def exchanged(fd, data):
            if directory.is_dir() and not directory.is_symlink():
                directory.rename(tmp_path / "moved")
                directory.symlink_to(precious.parent)
            return write(fd, data)

        monkeypatch.setattr(files.os, "write", exchanged)
        write_whole(str(directory / "authorized_keys"), b"mine")
        assert precious.read_text() == "precious"
        assert (tmp_path / "moved" / "authorized_keys").read_bytes() == b"mine"

    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a pipe", "a directory"])
    def test_what_is_no_file_is_not_replaced(self, tmp_path, make):
        make(tmp_path / "f")
        with pytest.raises(NotRegularError):
            write_whole(str(tmp_path / "f"), b"x")
        assert not (tmp_path / "f").is_file()
        assert os.listdir(tmp_path) == ["f"]

    @pytest.mark.root
    def test_a_device_is_not_replaced(self, tmp_path):
        os.mknod(tmp_path / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        with pytest.raises(NotRegularError):
            write_whole(str(tmp_path / "null"), b"x")
        assert stat.S_ISCHR((tmp_path / "null").stat().st_mode)

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(self, tmp_path):
        (tmp_path / "f").write_text("old")
        code = "import resource, sys; from holdfast.files import write_whole\n"
        code += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        code += "resource.setrlimit(resource.RLIMIT_FSIZE, (5, 5)); write_whole(sys.argv[1], b'too long')"
        ran = subprocess.run([sys.executable, "-c", code, tmp_path / "f"], capture_output=True, text=True, check=False)
        assert "File too large" in ran.stderr
        assert os.listdir(tmp_path) == ["f"]
        assert (tmp_path / "f").read_text() == "old"

    @pytest.mark.parametrize("name", ["a\0b", "\ud800", ""])
    def test_an_impossible_name_is_an_oserror(self, tmp_path, name):
        with pytest.raises(OSError):  # noqa: PT011 - its number is the system's
            write_whole(f"{tmp_path}/{name}", b"")


def plant(kind, path, target):
    match kind:
        case "a pipe":
            os.mkfifo(path)
        case "a directory":
            path.mkdir()
        case "a link":
            path.symlink_to(target)
        case "a link to a pipe":
            os.mkfifo(f"{path}.fifo")
            path.symlink_to(f"{path}.fifo")
        case "a device":
            path.symlink_to("/dev/zero")
        case "a socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(os.path.relpath(path))


PLANTED = ["a pipe", "a directory", "a link to a pipe", "a device", "a socket"]


class TestReading:
    def test_what_is_in_a_file_up_to_a_limit(self, tmp_path):
        (tmp_path / "f").write_bytes(b"x" * 3_000_000)
        assert read_regular(str(tmp_path / "f"), 5) == b"xxxxx"
        assert len(read_regular(str(tmp_path / "f"), 4_000_000)) == 3_000_000

    def test_a_file_without_an_end_costs_no_more_than_the_limit(self, tmp_path):
        with (tmp_path / "f").open("wb") as file:
            file.truncate(1 << 40)
        assert len(read_regular(str(tmp_path / "f"), 1000)) == 1000

    @pytest.mark.parametrize("follow", [False, True])
    @pytest.mark.parametrize("kind", PLANTED)
    def test_what_is_no_file_is_refused_at_once(self, tmp_path, monkeypatch, kind, follow):
        monkeypatch.chdir(tmp_path)
        plant(kind, tmp_path / "f", None)
        ended = threading.Event()

        def look():
            with pytest.raises(NotRegularError):
                open_regular(str(tmp_path / "f"), follow=follow)
            ended.set()

        threading.Thread(target=look, daemon=True).start()
        assert ended.wait(60)
        assert not is_regular(str(tmp_path / "f"))

    def test_a_link_is_followed_only_if_asked_for(self, tmp_path, precious):
        plant("a link", tmp_path / "f", precious)
        with pytest.raises(NotRegularError):
            read_regular(str(tmp_path / "f"), 100)
        assert read_regular(str(tmp_path / "f"), 100, follow=True) == b"precious"

    def test_a_file_that_is_not_there_is_told_as_ever(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            read_regular(str(tmp_path / "f"), 1)
        assert not is_regular(str(tmp_path / "f"))

    @pytest.mark.parametrize("name", ["a\0b", "\ud800"])
    def test_an_impossible_name_is_an_oserror(self, tmp_path, name):
        with pytest.raises(OSError, match="Impossible name"):
            open_regular(f"{tmp_path}/{name}")
        assert not is_regular(f"{tmp_path}/{name}")


@pytest.mark.parametrize("text", ["a", "20261118T0101-ab_C", "x" * 64])
def test_names_that_are_fit_for_a_file(text):
    assert is_name(text)


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "/a", "a.b", "a\n", "a\0", "ä", "x" * 65, "a b", "\ud800"])
def test_names_that_are_not(text):
    assert not is_name(text)


@pytest.mark.root
def test_whose_a_directory_is(tmp_path):
    assert other_owner(str(tmp_path)) is None
    os.chown(tmp_path, 65534, 65534)
    assert other_owner(str(tmp_path)) == 65534
    assert other_owner(str(tmp_path / "none")) is None


# Removing what others made


def deep_directory(top, depth):
    """A directory of so many levels, each with a file; no path reaches its bottom."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def emptied(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        files.empty(fd)
    finally:
        os.close(fd)
    return sorted(os.listdir(path))


def test_a_directory_of_any_depth_is_emptied(tmp_path):
    deep_directory(tmp_path, 3000)
    (tmp_path / "beside").write_text("x")
    assert emptied(tmp_path) == []


def test_links_are_removed_and_not_followed(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside" / "d"
    outside.mkdir()
    inside.mkdir(parents=True)
    (outside / "kept").write_text("x")
    (inside / "link").symlink_to(outside)
    (inside.parent / "link").symlink_to(outside)
    assert emptied(tmp_path / "inside") == []
    assert os.listdir(outside) == ["kept"]


def test_names_that_are_taken_in_a_nested_directory_are_no_obstacle(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "same" / "same").mkdir(parents=True)
        (tmp_path / name / "same" / "file").write_text("x")
    assert emptied(tmp_path) == []


def test_removing_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "REMOVED_MAX", 10)
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert len(emptied(tmp_path)) == 90


def test_what_cannot_be_removed_is_left(tmp_path):
    closed = tmp_path / "closed"
    (closed / "d").mkdir(parents=True)
    (tmp_path / "file").touch()
    subprocess.run(["chattr", "+i", closed], check=False)
    try:
        assert "file" not in emptied(tmp_path)
    finally:
        subprocess.run(["chattr", "-i", closed], check=False)


def test_a_tree_is_removed_with_its_top(tmp_path):
    deep_directory(tmp_path, 10)
    files.remove_tree(str(tmp_path / "d"))
    files.remove_tree(str(tmp_path / "nothing"))
    assert os.listdir(tmp_path) == ["file"]
