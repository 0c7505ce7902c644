from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from other_users import MALLORY

from holdfast import files
from holdfast.errors import error_file as module
from holdfast.errors.error_file import FILE_MAX_BYTES, read_error_file, write_error_file

NOW = 1_700_000_100.0
WRITTEN = {"message": "m", "timestamp": 1_700_000_000}


def put(path, content, modified_at=NOW):
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    os.utime(path, (modified_at, modified_at))
    return str(path)


def full(timestamp, **extra):
    return {"message": {"message": "E: x", "extraInfo": {"py_callstack": "stack", "timestamp": timestamp, **extra}}}


@pytest.fixture
def precious(tmp_path):
    """An error file of another job of this user."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "error.json").write_text("precious")
    return tmp_path / "home" / "error.json"


@pytest.fixture
def taken(tmp_path, precious):
    """Error files in directories that were ours: a clean-up removed them, and another user made them again."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    ranks = [shared / name / "attempt_0" / "0" for name in ("job7_1", "job7_2", "job7_3", "job7_4")]
    ranks[0].mkdir(parents=True)
    (ranks[0] / "error.json").symlink_to(precious)
    ranks[1].parent.mkdir(parents=True)
    ranks[1].symlink_to(precious.parent)
    ranks[2].mkdir(parents=True)
    ranks[3].mkdir(parents=True)
    ranks[3].chmod(0o777)
    for path in shared.rglob("*"):
        os.lchown(path, MALLORY, MALLORY)
    return [rank / "error.json" for rank in ranks]


class TestReading:
    def test_no_file_is_no_report(self, tmp_path):
        assert read_error_file(str(tmp_path / "none"), NOW) is None
        (tmp_path / "file").touch()
        assert read_error_file(str(tmp_path / "file" / "below"), NOW) is None

    def test_the_first_shape_gives_the_traceback(self, tmp_path):
        data = full("1700000000")
        report = read_error_file(put(tmp_path / "f", data), NOW)
        assert (report.data, report.message, report.timestamp) == (data, "stack", 1_700_000_000)

    def test_the_second_shape_gives_the_text(self, tmp_path):
        report = read_error_file(put(tmp_path / "f", WRITTEN), NOW)
        assert (report.data, report.message, report.timestamp) == (WRITTEN, "m", 1_700_000_000)

    @pytest.mark.parametrize("stack", [None, "", "  ", 5, ["x"]])
    def test_without_a_usable_traceback_the_message_is_what_there_is(self, tmp_path, stack):
        data = {"message": {"message": "E: x", "extraInfo": {"py_callstack": stack}}}
        assert read_error_file(put(tmp_path / "f", data), NOW).message == "E: x"

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"", "is empty"),
            (b" \n ", "is empty"),
            (b'{"message": {"message": "the cau', "is cut off or is not JSON"),
            (b"Segmentation fault", "is cut off or is not JSON"),
            (b'{"message": "\xff\xfe"}', "is not UTF-8"),
            (b'["message"]', "is not a JSON object"),
            (b"null", "is not a JSON object"),
            (b"{}", "has no message"),
            (b'{"message": null}', "has no message"),
            (b'{"message": " "}', "has no message"),
            (b'{"message": {"message": 5, "extraInfo": "x"}}', "has no message"),
            (b'{"message": "m", "deep": ' + b"[" * 100 + b"]" * 100 + b"}", "is nested deeper than 64"),
            (b"[" * 100_000, "is cut off or is not JSON"),
            (b'{"message": "m", "timestamp": ' + b"9" * 10_000 + b"}", "is cut off or is not JSON"),
        ],
    )
    def test_an_unreadable_file_is_described_and_quoted(self, tmp_path, content, problem):
        path = put(tmp_path / "f", content, modified_at=NOW - 7)
        report = read_error_file(path, NOW)
        assert f"{path!r} {problem}" in report.message
        quote = content.decode("utf-8", "backslashreplace")[:1000].strip()
        assert quote in report.message
        assert report.data == {"message": report.message, "timestamp": int(NOW - 7)}
        assert report.timestamp == NOW - 7

    def test_a_file_of_absurd_size_is_not_read_to_its_end(self, tmp_path):
        path = tmp_path / "f"
        path.write_bytes(b'{"message": "the beginning')
        os.truncate(path, 1 << 40)
        message = read_error_file(str(path), time.time()).message
        assert f"is larger than {FILE_MAX_BYTES} bytes" in message
        assert "the beginning" in message
        assert len(message) < 20_000

    def test_a_file_of_the_greatest_size_is_read(self, tmp_path):
        frame = len('{"message": ""}')
        path = put(tmp_path / "f", {"message": "x" * (FILE_MAX_BYTES - frame)})
        assert os.stat(path).st_size == FILE_MAX_BYTES
        assert read_error_file(path, NOW).message.startswith("xxx")

    def test_a_long_message_is_cut_and_says_where_all_of_it_is(self, tmp_path):
        for data in (
            {"message": "<" + "x" * 500_000 + ">"},
            full("1700000000", py_callstack="<" + "\n" * 500_000 + ">"),
        ):
            path = put(tmp_path / "f", data)
            report = read_error_file(path, NOW)
            assert len(report.message) < 70_000
            assert (report.message[0], report.message[-1]) == ("<", ">")
            assert f" characters left out; the whole text is in {path!r} ..." in report.message
            assert report.data == data

    def test_a_directory_is_described(self, tmp_path):
        assert f"{str(tmp_path)!r} is a directory" in read_error_file(str(tmp_path), NOW).message

    def test_a_fifo_does_not_hold_the_reader(self, tmp_path):
        os.mkfifo(tmp_path / "fifo")
        assert read_error_file(str(tmp_path / "fifo"), NOW) is None

    def test_a_device_keeps_nothing(self):
        assert read_error_file(os.devnull, NOW) is None

    def test_an_impossible_name_is_described(self):
        assert "cannot be read (Impossible name)" in read_error_file("a\0b", NOW).message

    def test_a_file_that_cannot_be_opened_is_described(self, tmp_path):
        loop = tmp_path / "loop"
        loop.symlink_to(loop)
        assert f"{str(loop)!r} cannot be read (Too many levels" in read_error_file(str(loop), NOW).message

    @pytest.mark.root
    def test_a_file_without_permission_is_described(self, tmp_path, run_python):
        path = put(tmp_path / "f", WRITTEN)
        os.chmod(path, 0)
        code = """
            import os
            from holdfast.errors.error_file import read_error_file
            os.setgroups([]); os.setgid(65534)
            directory = os.open(os.path.dirname(os.environ["FILE"]), os.O_RDONLY)
            os.fchdir(directory)
            os.setuid(65534)
            print(read_error_file(os.path.basename(os.environ["FILE"]), 1.0).message)
        """
        shown = run_python(code, FILE=path)
        assert "'f' cannot be read (Permission denied)" in shown.stdout, shown.stderr

    def test_control_characters_of_a_broken_file_do_not_reach_the_terminal(self, tmp_path):
        assert "\x1b" not in read_error_file(put(tmp_path / "f", b"\x1b[2J"), NOW).message

    def test_lone_surrogates_become_printable(self, tmp_path):
        report = read_error_file(put(tmp_path / "f", b'{"message": "a\\ud800b"}'), NOW)
        assert report.message == "a\\ud800b"

    @pytest.mark.root
    def test_what_another_user_may_have_put_there_is_not_believed(self, taken):
        for path in taken:
            if not path.exists():
                path.write_text('{"message": "forged"}')
                os.chown(path, MALLORY, MALLORY)
            assert read_error_file(str(path), NOW) is None


class TestTime:
    @pytest.mark.parametrize("second", ["1700000000", 1_700_000_000, 1_700_000_000.0])
    def test_nanoseconds_refine_the_second(self, tmp_path, second):
        path = put(tmp_path / "f", full(second, timestamp_ns="1700000000123456789"))
        assert read_error_file(path, NOW).timestamp == pytest.approx(1_700_000_000.123456789, abs=1e-6)

    @pytest.mark.parametrize("nonsense", ["1800000000123456789", "x", "9" * 5000, None, {}, True, -1])
    def test_nanoseconds_of_another_second_are_not_believed(self, tmp_path, nonsense):
        path = put(tmp_path / "f", full("1700000000", timestamp_ns=nonsense))
        assert read_error_file(path, NOW).timestamp == 1_700_000_000

    @pytest.mark.parametrize(
        ("modified_at", "expected"),
        [
            (1_700_000_000.25, 1_700_000_000.25),
            (1_700_000_001.5, 1_700_000_000.999_999),  # written late, failed in the second that it names
            (1_700_000_002.5, 1_700_000_000),  # copied or touched
            (1_699_999_999.9, 1_700_000_000),
        ],
    )
    def test_a_whole_second_is_refined_by_when_the_file_was_written(self, tmp_path, modified_at, expected):
        path = put(tmp_path / "f", full("1700000000"), modified_at)
        assert read_error_file(path, NOW).timestamp == pytest.approx(expected, abs=1e-6)

    def test_a_fraction_that_the_file_states_is_kept(self, tmp_path):
        path = put(tmp_path / "f", full("1700000000.5"), 1_700_000_000.9)
        assert read_error_file(path, NOW).timestamp == 1_700_000_000.5

    @pytest.mark.parametrize("nonsense", [None, "soon", [], {}, True, -1, 1e300, "inf", "nan", "9" * 400, 9**4000])
    def test_a_nonsensical_time_gives_way_to_when_the_file_was_written(self, tmp_path, nonsense):
        path = put(tmp_path / "f", full(nonsense), NOW - 5)
        assert read_error_file(path, NOW).timestamp == NOW - 5

    def test_a_file_from_the_future_was_written_now(self, tmp_path):
        path = put(tmp_path / "f", {"message": "m"}, NOW + 1000)
        assert read_error_file(path, NOW).timestamp == NOW


@given(
    content=st.one_of(
        st.binary(),
        st.integers(0, 200).map(lambda end: json.dumps(full("1700000000", timestamp_ns="17")).encode()[:end]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["message", "extraInfo", "py_callstack", "timestamp", "timestamp_ns", "errorCode"]),
                    inner,
                )
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_nothing_in_a_file_makes_the_reader_fail(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any-error-file"
    path.write_bytes(content)
    now = time.time()
    report = read_error_file(str(path), now)
    assert report.message.strip()
    assert report.message.encode()
    assert isinstance(report.data, dict)
    assert 0 <= report.timestamp < module.TIME_END_S


class TestWriting:
    def test_what_is_written_is_read(self, tmp_path):
        path = str(tmp_path / "f")
        write_error_file(path, json.dumps(WRITTEN))
        assert read_error_file(path, NOW).data == WRITTEN

    def test_missing_directories_are_made(self, tmp_path):
        write_error_file(str(tmp_path / "a" / "b" / "f"), "{}")
        assert (tmp_path / "a" / "b" / "f").read_text() == "{}"

    @pytest.mark.root
    def test_missing_directories_are_not_made_in_another_users(self, tmp_path):
        """A clean-up removed the temporary directory, and another user took its name."""
        os.chown(tmp_path, MALLORY, MALLORY)
        tmp_path.chmod(0o777)
        with pytest.raises(PermissionError, match="another user's directory"):
            write_error_file(str(tmp_path / "a" / "b" / "f"), "{}")
        assert os.listdir(tmp_path) == []

    @pytest.mark.root
    def test_another_user_who_made_the_path_again_gets_nothing(self, taken, precious):
        """With a link to a file of ours at its end, or on the way to it, or with nothing."""
        for path in taken:
            with pytest.raises(PermissionError, match="another user's"):
                write_error_file(str(path), '{"message": "m"}')
            assert precious.read_text() == "precious"
            assert sorted(os.listdir(precious.parent)) == ["error.json"]

    @pytest.mark.root
    def test_a_file_that_cannot_be_replaced_is_overwritten_only_if_it_is_ours(self, tmp_path, monkeypatch):
        def refuse(*_, **__):
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(module, "write_whole_in", refuse)
        path = tmp_path / "f"
        path.write_text("something that is longer than the next content")
        tmp_path.chmod(0o1777)
        write_error_file(str(path), "{}")
        assert path.read_text() == "{}"
        os.chown(path, MALLORY, MALLORY)
        with pytest.raises(PermissionError, match="another user's file"):
            write_error_file(str(path), '{"message": "secret"}')
        assert path.read_text() == "{}"

    def test_a_pipe_of_this_process_is_written_to(self):
        reading, writing = os.pipe()
        try:
            write_error_file(f"/dev/fd/{writing}", "{}")
            assert os.read(reading, 100) == b"{}"
        finally:
            os.close(reading)
            os.close(writing)

    def test_a_relative_path_is_enough(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_error_file("f", "{}")
        assert (tmp_path / "f").read_text() == "{}"

    def test_surrogates_do_not_stop_it(self, tmp_path):
        write_error_file(str(tmp_path / "f"), '{"message": "\ud800"}')
        assert json.loads((tmp_path / "f").read_text()) == {"message": "\ud800"}

    def test_a_reader_never_sees_a_part(self, tmp_path):
        path = tmp_path / "f"
        documents = [json.dumps({"message": letter * 500_000}) for letter in "ab"]
        write_error_file(str(path), documents[0])
        finished = threading.Event()

        def rewrite():
            try:
                for turn in range(100):
                    write_error_file(str(path), documents[turn % 2])
            finally:
                finished.set()

        writer = threading.Thread(target=rewrite)
        writer.start()
        try:
            seen = set()
            while not finished.is_set():
                seen.add(path.read_text())
        finally:
            writer.join()
        assert seen <= set(documents)
        assert os.listdir(tmp_path) == ["f"]

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(self, tmp_path, monkeypatch):
        path = tmp_path / "f"
        path.write_text("old")

        def fail(*_, **__):
            raise OSError(5, "I/O error")

        monkeypatch.setattr(files.os, "rename", fail)
        with pytest.raises(OSError, match="I/O error"):
            write_error_file(str(path), "new")
        assert os.listdir(tmp_path) == ["f"]
        assert path.read_text() == "old"

    def test_a_link_is_followed(self, tmp_path):
        (tmp_path / "link").symlink_to(tmp_path / "target")
        write_error_file(str(tmp_path / "link"), "{}")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "target").read_text() == "{}"

    def test_a_fifo_is_written_to_and_stays_one(self, tmp_path):
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        try:
            write_error_file(str(fifo), "{}")
            assert os.read(reader, 100) == b"{}"
        finally:
            os.close(reader)
        assert stat.S_ISFIFO(os.stat(fifo).st_mode)
        with pytest.raises(OSError, match="No such device or address"):
            write_error_file(str(fifo), "nobody reads this")

    def test_a_directory_in_its_place_is_an_error(self, tmp_path):
        with pytest.raises(IsADirectoryError):
            write_error_file(str(tmp_path), "{}")

    @pytest.mark.root
    def test_a_file_that_is_a_mount_is_written_in_place(self, tmp_path):
        outside, inside = tmp_path / "outside", tmp_path / "inside"
        outside.write_text("something that is longer than the next content")
        inside.touch()
        subprocess.run(["mount", "--bind", outside, inside], check=True)
        try:
            write_error_file(str(inside), "{}")
        finally:
            subprocess.run(["umount", inside], check=True)
        assert outside.read_text() == "{}"
        assert sorted(os.listdir(tmp_path)) == ["inside", "outside"]
