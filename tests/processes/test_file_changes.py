from __future__ import annotations

import errno
import os
import threading

import pytest

from holdfast.processes import file_changes
from holdfast.processes.file_changes import FileChanges, Inotify

DEADLINE_S = 60


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def changes(warnings):
    changes = FileChanges(warnings.append)
    impatient = threading.Timer(DEADLINE_S, changes.interrupt)
    impatient.start()
    yield changes
    impatient.cancel()
    impatient.join()
    changes.close()


@pytest.fixture
def file(tmp_path):
    with open(tmp_path / "file", "ab+", buffering=0) as file:
        yield file


def waited_for(changes, key):
    """All keys that were returned until `key` was: an event may be followed by one that tells nothing."""
    seen = set()
    while key not in seen:
        keys = changes.wait()
        assert keys or not interrupted(changes), "nothing happened"
        seen |= keys
    return seen


def interrupted(changes):
    return bool(changes._interrupted in [fd for fd, _ in changes._poll.poll(0)])


def test_a_write_is_told_once(changes, file):
    changes.watch_file(7, file.fileno())
    file.write(b"1")
    assert waited_for(changes, 7) == {7}
    file.write(b"2")  # not watched now
    changes.interrupt()
    assert changes.wait() == set()


def test_a_watch_may_be_renewed_for_ever(changes, file):
    for _ in range(500):
        changes.watch_file(1, file.fileno())
        file.write(b"x")
        assert waited_for(changes, 1) == {1}


def test_a_watch_survives_a_writer_that_never_pauses(changes, file):
    """The kernel removes a watch that fired; that must never hit its renewal unseen."""
    rounds, done = 3000, threading.Event()

    def write():
        writer = os.open(file.name, os.O_WRONLY | os.O_APPEND)
        while not done.is_set():
            os.write(writer, b"x")
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(rounds):
            changes.watch_file(1, file.fileno())
            waited_for(changes, 1)
    finally:
        done.set()
        thread.join()


def test_truncation_renaming_and_removal_are_told(changes, file, tmp_path):
    file.write(b"x")
    for act in (
        lambda: file.truncate(0),
        lambda: os.rename(file.name, tmp_path / "other"),
        lambda: os.unlink(tmp_path / "other"),
    ):
        changes.watch_file(1, file.fileno())
        act()
        assert waited_for(changes, 1) == {1}


def test_two_keys_may_watch_one_file(changes, file):
    changes.watch_file(1, file.fileno())
    changes.watch_file(2, file.fileno())
    file.write(b"x")
    assert waited_for(changes, 1) == {1, 2}


def test_creation_is_told_however_many_directories_are_missing(changes, tmp_path):
    path = tmp_path / "a" / "b" / "file"
    for step in (path.parent.parent.mkdir, path.parent.mkdir, path.touch):
        changes.watch_creation(3, str(path))
        step()
        assert waited_for(changes, 3) == {3}


def test_a_file_that_is_moved_to_its_place_counts_as_created(changes, tmp_path):
    (tmp_path / "elsewhere").touch()
    (tmp_path / "there").mkdir()
    changes.watch_creation(3, str(tmp_path / "there" / "file"))
    (tmp_path / "elsewhere").rename(tmp_path / "there" / "file")
    assert waited_for(changes, 3) == {3}


def test_an_interrupt_ends_this_and_all_later_waits(changes, file):
    changes.watch_file(1, file.fileno())
    thread = threading.Thread(target=changes.interrupt)
    thread.start()
    assert changes.wait() == set()
    assert changes.wait() == set()
    changes.pause(10 * DEADLINE_S)
    thread.join()


def test_after_lost_events_everything_may_have_changed(changes, file, tmp_path, monkeypatch):
    changes.watch_file(1, file.fileno())
    changes.watch_creation(2, str(tmp_path / "other"))
    monkeypatch.setattr(Inotify, "read", lambda _self: {-1})
    file.write(b"x")
    assert changes.wait() == {1, 2}


def refuse(number):
    def refused(*_args):
        raise OSError(number, os.strerror(number))

    return refused


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EMFILE])
def test_without_inotify_every_file_counts_as_changed_now_and_then(
    changes, warnings, file, tmp_path, monkeypatch, number
):
    monkeypatch.setattr(file_changes, "Inotify", refuse(number))
    for _ in range(2):
        changes.watch_file(1, file.fileno())
        changes.watch_creation(2, str(tmp_path / "other"))
        assert changes.wait() == {1, 2}
    assert len(warnings) == 1
    assert os.strerror(number) in warnings[0]


def test_out_of_watches_the_files_that_have_one_are_not_forgotten(changes, warnings, file, tmp_path, monkeypatch):
    changes.watch_file(1, file.fileno())
    file.write(b"an event that nobody will read")
    monkeypatch.setattr(Inotify, "watch_once", refuse(errno.ENOSPC))
    changes.watch_creation(2, str(tmp_path / "other"))
    assert changes.wait() == {1, 2}
    assert len(warnings) == 1
    assert changes.wait() == set()


def test_where_it_must_look_it_does_not_spin(changes, file, monkeypatch):
    monkeypatch.setattr(file_changes, "Inotify", refuse(errno.EMFILE))
    monkeypatch.setattr(file_changes, "LOOK_PERIOD_S", 10 * DEADLINE_S)
    changes.watch_file(1, file.fileno())
    other = threading.Thread(target=changes.interrupt)
    other.start()
    assert changes.wait() == {1}
    assert interrupted(changes)
    other.join()


def test_nothing_stays_open(file):
    before = os.listdir("/proc/self/fd")
    for _ in range(20):
        changes = FileChanges(pytest.fail)
        changes.watch_file(1, file.fileno())
        changes.interrupt()
        changes.close()
    assert os.listdir("/proc/self/fd") == before
