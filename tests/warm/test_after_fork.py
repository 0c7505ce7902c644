"""What a copy does for itself, so that it is like a process of its own."""

from __future__ import annotations

from fresh_python import run_fresh

from holdfast.warm.after_fork import Changes


def test_the_changes_of_imports_are_done_again_in_another_environment():
    changes = Changes({"kept": "1", "changed": "1", "gone": "1"}, {"kept": "1", "changed": "2", "new": "3"})
    assert changes.applied_to({"changed": "9", "gone": "9", "own": "9"}) == {"changed": "2", "new": "3", "own": "9"}


def test_a_copy_has_its_own_environment_position_and_secrets(tmp_path):
    (tmp_path / "data").write_bytes(b"abc")
    ended = run_fresh(
        """
        import os, random, signal, sys
        import multiprocessing.process
        from holdfast.warm.after_fork import freshen

        fd = os.open("data", os.O_RDONLY)
        key = bytes(multiprocessing.process.current_process().authkey)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.read(fd, 1)
        if os.fork() == 0:
            freshen({"ONLY": "this"}, {fd: True})
            assert dict(os.environ) == {"ONLY": "this"}, os.environ
            assert os.get_inheritable(fd)
            assert os.read(fd, 2) == b"bc"  # at the same position, which is now its own
            assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
            assert bytes(multiprocessing.process.current_process().authkey) != key
            print("as it should be")
            sys.stdout.flush()
            os._exit(0)
        assert os.wait()[1] == 0
        assert os.read(fd, 2) == b"bc"
        """.replace('"data"', repr(str(tmp_path / "data")))
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("as it should be\n", "", 0)


def test_a_stream_is_the_same_object_for_what_the_descriptor_is_now(tmp_path):
    ended = run_fresh(f"""
        import os, sys
        from holdfast.warm.after_fork import freshen

        held = sys.stdout
        os.dup2(os.open({str(tmp_path / "out")!r}, os.O_WRONLY | os.O_CREAT), 1)
        freshen(dict(os.environ), {{}})
        assert sys.stdout is held
        held.write("a line\\n")
    """)
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert (tmp_path / "out").read_text() == "a line\n"


def test_what_was_not_written_is_written_at_the_end(tmp_path):
    ended = run_fresh(f"""
        from holdfast.warm.after_fork import open_files, write_files

        file = open({str(tmp_path / "out")!r}, "w")
        file.write("text")
        closed = open({str(tmp_path / "other")!r}, "w")
        files = open_files()
        closed.close()
        write_files(files)
        assert open({str(tmp_path / "out")!r}).read() == "text"
    """)
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_the_command_line_that_others_see():
    ended = run_fresh("""
        from holdfast.warm.after_fork import show_command

        show_command(["python", "train.py"])
        print(open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0)))
    """)
    assert ended.stdout == "['python', 'train.py']\n"
