"""Paths that another user may have taken meanwhile: what is followed, what is believed, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from other_users import ALICE, MALLORY

from holdfast import own_files
from holdfast.files import NotRegularError
from holdfast.own_files import LINKS_MAX, ForeignError, find, open_own


@pytest.fixture
def home(tmp_path):
    """A directory of this user's with a file that nobody else may reach through another name."""
    path = tmp_path / "home"
    path.mkdir()
    (path / "f").write_text("precious")
    return path


@pytest.fixture
def shared(tmp_path):
    """A directory like /tmp."""
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    return path


def link(path, target, owner=None):
    path.symlink_to(target)
    if owner is not None:
        os.lchown(path, owner, owner)
    return path


def directory(path, owner=None, mode=0o755):
    path.mkdir()
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, owner)
    return path


def found(path, **options):
    """The real path of the place that `path` leads to."""
    with find(str(path), **options) as place:
        return Path(os.readlink(f"/proc/self/fd/{place.directory}"), place.name)


def read(path):
    with open(open_own(str(path)), "rb") as file:
        return file.read().decode()


class TestOurOwn:
    def test_a_file_is_found_and_read(self, home):
        assert found(home / "f") == home / "f"
        assert found(home / "new") == home / "new"
        assert read(home / "f") == "precious"

    def test_links_are_followed_however_they_are_written(self, home, tmp_path):
        link(tmp_path / "absolute", home)
        link(tmp_path / "relative", "home/../absolute/.")
        link(tmp_path / "file", "relative//f")
        assert found(tmp_path / "file") == home / "f"
        assert read(tmp_path / "relative" / "f") == "precious"
        assert found(link(tmp_path / "dangling", "home/none")) == home / "none"

    def test_a_path_may_be_relative(self, home, monkeypatch):
        monkeypatch.chdir(home)
        assert found("f") == found("../home/./f") == home / "f"

    def test_missing_directories_are_made_only_if_asked(self, home):
        with pytest.raises(FileNotFoundError):
            find(str(home / "a" / "b" / "f"))
        assert found(home / "a" / "b" / "f", make=True) == home / "a" / "b" / "f"
        assert (home / "a" / "b").is_dir()

    def test_a_circle_of_links_has_an_end(self, tmp_path):
        link(tmp_path / "circle", "circle")
        with pytest.raises(OSError, match="Too many levels"):
            find(str(tmp_path / "circle"))
        for number in range(LINKS_MAX):
            link(tmp_path / str(number), str(number + 1))
        assert found(tmp_path / "0") == tmp_path / str(LINKS_MAX)

    @pytest.mark.parametrize("path", ["/", ".", "//", ""])
    def test_what_names_no_file_is_refused(self, path):
        with pytest.raises(OSError, match=r"Is a directory|No such file"):
            find(path)

    def test_what_is_no_file_is_not_read(self, home):
        os.mkfifo(home / "fifo")
        for path in (home / "fifo", home, home / "..", os.devnull):
            with pytest.raises(NotRegularError):
                open_own(str(path))
        with pytest.raises(NotADirectoryError):
            open_own(str(home / "f" / "below"))

    def test_a_process_s_own_pipe_has_a_place(self):
        reading, writing = os.pipe()
        try:
            with find(f"/proc/self/fd/{writing}") as place:
                assert (place.name, place.is_process) == (str(writing), True)
        finally:
            os.close(reading)
            os.close(writing)

    def test_a_process_s_own_file_is_that_file(self, home):
        with open(home / "f") as file:
            assert found(f"/dev/fd/{file.fileno()}") == home / "f"

    def test_nothing_stays_open(self, home, tmp_path):
        before = os.listdir("/proc/self/fd")
        read(link(tmp_path / "link", home / "f"))
        for path in (tmp_path / "none" / "f", home / "f" / "below", "/"):
            with pytest.raises(OSError, match=r"\w"):
                find(str(path))
        assert os.listdir("/proc/self/fd") == before

    def test_a_link_to_var_run_is_root_s(self):
        target = os.path.realpath("/var/run")
        assert found("/var/run/none") == Path(target, "none")


@pytest.mark.root
class TestAnotherUser:
    @pytest.mark.parametrize("make", [True, False])
    def test_a_link_is_not_followed_wherever_it_is_on_the_way(self, make, home, shared):
        link(shared / "directory", home, MALLORY)
        link(shared / "f", home / "f", MALLORY)
        link(shared / "two", shared / "directory")
        for path in (shared / "f", shared / "directory" / "f", shared / "two" / "f", shared / "directory" / "a" / "f"):
            with pytest.raises(ForeignError, match="another user's link"):
                find(str(path), make=make)
            with pytest.raises(ForeignError, match="another user's link"):
                open_own(str(path))
        assert os.listdir(home) == ["f"]

    def test_the_last_directory_is_not_believed(self, shared):
        directory(shared / "logs", MALLORY)
        (shared / "logs" / "f").write_text("forged")
        for path in (shared / "logs" / "f", shared / "logs" / "none"):
            with pytest.raises(ForeignError, match="another user's directory"):
                open_own(str(path))

    def test_nothing_is_made_in_a_directory_of_his(self, shared):
        directory(shared / "logs", MALLORY, 0o777)
        with pytest.raises(ForeignError, match="another user's directory"):
            find(str(shared / "logs" / "a" / "f"), make=True)
        assert os.listdir(shared / "logs") == []

    def test_a_directory_of_his_that_was_ours_to_begin_with_is_on_the_way(self, tmp_path):
        """As a group's, in which each of its people has directories."""
        group = directory(tmp_path / "group", ALICE, 0o775)
        directory(group / "mine")
        (group / "mine" / "f").write_text("mine")
        assert read(group / "mine" / "f") == "mine"
        assert found(group / "mine" / "a" / "f", make=True) == group / "mine" / "a" / "f"

    def test_a_file_is_not_believed_where_all_can_write(self, shared, home):
        for path, mode in ((shared, 0o1777), (home, 0o777)):
            (path / "forged").write_text("forged")
            os.chown(path / "forged", MALLORY, MALLORY)
            path.chmod(mode)
            with pytest.raises(ForeignError, match="another user's file"):
                open_own(str(path / "forged"))
        (shared / "f").write_text("ours")
        assert read(shared / "f") == "ours"
        home.chmod(0o755)
        assert read(home / "forged") == "forged", "as one that a worker wrote that gave up its rights"

    def test_a_link_of_ours_is_not_followed_where_he_could_have_moved_it(self, shared, home):
        path = link(shared / "link", home / "f")
        assert read(path) == "precious"
        shared.chmod(0o777)
        with pytest.raises(ForeignError, match="another user's link"):
            open_own(str(path))

    def test_a_directory_that_is_exchanged_meanwhile_changes_nothing(self, shared, home, monkeypatch):
        """The name leads elsewhere as soon as the directory is open."""
        (directory(shared / "logs") / "f").write_text("ours")
        with find(str(shared / "logs" / "f")) as place:
            (shared / "logs").rename(shared / "away")
            link(shared / "logs", home, MALLORY)
            fd = os.open(place.name, os.O_RDONLY, dir_fd=place.directory)
            assert os.read(fd, 100) == b"ours"
            os.close(fd)


@pytest.mark.parametrize(
    ("owner", "maps", "is_unmapped"),
    [
        (65534, "0 0 4294967295\n", False),
        (65534, "1000 1000 1\n", True),
        (65534, "0 1000 1\n1 100000 65535\n", False),
        (65534, "0 1000 1\n1 100000 1000\n", True),
        (65533, "1000 1000 1\n", False),
        (65534, "nonsense\n", False),
    ],
)
def test_whose_number_stands_for_users_without_one(owner, maps, is_unmapped, tmp_path, monkeypatch):
    (tmp_path / "overflowuid").write_text("65534\n")
    (tmp_path / "uid_map").write_text(maps)
    monkeypatch.setattr(own_files, "_UNMAPPED", str(tmp_path / "overflowuid"))
    monkeypatch.setattr(own_files, "_MAPPED", str(tmp_path / "uid_map"))
    assert own_files._is_unmapped(owner) == is_unmapped
    monkeypatch.setattr(own_files, "_MAPPED", str(tmp_path / "none"))
    assert not own_files._is_unmapped(owner)


@pytest.mark.root
def test_what_root_without_a_number_owns_is_root_s_only_where_others_cannot_write(home, shared, monkeypatch):
    """As in a container without root rights: root's files have the same owner as those of any other user."""
    monkeypatch.setattr(own_files, "_is_unmapped", lambda owner: owner == MALLORY)
    link(home / "link", "f", MALLORY)
    (directory(home / "device") / "f").write_text("a device")
    os.chown(home / "device", MALLORY, MALLORY)
    monkeypatch.chdir(home)
    assert read("link") == "precious"
    assert read("device/f") == "a device"
    link(shared / "link", home / "f", MALLORY)
    directory(shared / "logs", MALLORY)
    for path in (shared / "link", shared / "logs" / "f"):
        with pytest.raises(ForeignError):
            find(str(path))
