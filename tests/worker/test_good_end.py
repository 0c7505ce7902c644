"""The mark of a program that ended well: which ends leave it, and what a program notices of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.processes import postmortem
from holdfast.worker import good_end

GOOD = {
    "the last line": "print('done')",
    "exit": "import sys\nsys.exit()",
    "exit with None": "import sys\nsys.exit(None)",
    "exit with 0": "import sys\nsys.exit(0)",
    "exit in a function": "import sys\ndef main():\n    try: sys.exit(0)\n    finally: x = 1\nmain()",
    "an exit that was caught": "import sys\ntry: sys.exit(1)\nexcept SystemExit: pass",
    "exit handlers": "import atexit\natexit.register(print, 'bye')",
    "a child that failed": "import os\nif os.fork() == 0: os._exit(3)\nos.wait()",
    "a failure that was caught": "try: 1 / 0\nexcept ZeroDivisionError: pass",
    "no streams": "import sys\nsys.stdout = sys.stderr = None",
}

BAD = {
    "exit with 1": "import sys\nsys.exit(1)",
    "exit with a text": "import sys\nsys.exit('text')",
    "exit with False, which the interpreter takes as a 0": "import sys\nsys.exit(False)",
    "an exception": "1 / 0",
    "an exit that is raised": "raise SystemExit(0)",
    "an exit that was caught, and another": "import sys\ntry: sys.exit(0)\nexcept SystemExit: sys.exit(1)",
    "an exit handler that fails": "import atexit\natexit.register(lambda: 1 / 0)",
    "an exit handler that exits": "import atexit, os\natexit.register(os._exit, 0)",
    "a thread that failed": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()",
    "an exit at once": "import os\nos._exit(0)",
    "output that is lost": "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('lost')",
    "a hook for what cannot be raised": "import sys\nsys.unraisablehook = lambda args: None",
}


def mark_of(ended):
    path = Path(ended.page + good_end.SUFFIX)
    return path.read_text() if path.exists() else None


@pytest.mark.parametrize("name", GOOD)
def test_a_good_end_leaves_the_process_id(programs, name):
    ended = programs.worker(programs.file("script.py", f"import os\nprint(os.getpid(), flush=True)\n{GOOD[name]}\n"))
    pid = ended.stdout.split()[0]
    assert (ended.code, mark_of(ended)) == (0, pid)
    assert postmortem.has_ended_well({"HOLDFAST_WORKER_PAGE": ended.page}, int(pid))


@pytest.mark.parametrize("name", BAD)
def test_any_other_end_leaves_nothing(programs, name):
    ended = programs.worker(programs.file("script.py", f"{BAD[name]}\n"))
    assert mark_of(ended) is None


@pytest.mark.parametrize(("source", "is_good"), [("", True), ("import sys; sys.exit(0)", True), ("1 / 0", False)])
def test_a_module(programs, source, is_good):
    programs.file("module_of_test.py", source)
    assert (mark_of(programs.worker("-m", "module_of_test")) is not None) == is_good


def test_an_end_that_cannot_be_told_from_a_bad_one_leaves_nothing(programs):
    programs.file("inside/__main__.py", "")
    assert mark_of(programs.worker("-c", "")) is None
    assert mark_of(programs.worker("inside")) is None


def test_the_mark_comes_before_the_interpreter_takes_its_modules_down(programs):
    source = """
import os
class Mine:
    def __del__(self, abort=os.abort):
        abort()
mine = Mine()
"""
    ended = programs.worker(programs.file("script.py", source))
    assert "Fatal Python error: Aborted" in ended.stacks
    assert mark_of(ended) is not None
    assert ended.code == 0, "so the crash is no failure"


def test_the_mark_comes_after_the_programs_exit_handlers(programs):
    source = f"""
import atexit, os
page = os.environ["HOLDFAST_WORKER_PAGE"]
atexit.register(lambda: print(os.path.exists(page + {good_end.SUFFIX!r})))
"""
    ended = programs.worker(programs.file("script.py", source))
    assert (ended.stdout, mark_of(ended) is None) == ("False\n", False)


def test_a_link_that_somebody_planted_is_not_followed(programs, tmp_path):
    target = tmp_path / "target"
    (tmp_path / f"page{good_end.SUFFIX}").symlink_to(target)
    ended = programs.worker(programs.file("script.py", ""), HOLDFAST_WORKER_PAGE=str(tmp_path / "page"))
    assert ended.code == 0
    assert not target.exists()


def test_without_a_page_nothing_is_replaced(programs):
    source = "import sys\nprint(type(sys.exit).__name__, sys.unraisablehook is sys.__unraisablehook__)"
    ended = programs.worker(programs.file("script.py", source), HOLDFAST_WORKER_PAGE="")
    assert (ended.code, ended.stdout) == (0, "builtin_function_or_method True\n")


def test_exit_is_like_the_built_in_one(programs):
    source = """
import pickle, sys
print(sys.exit.__module__, sys.exit.__qualname__, sys.exit.__doc__.splitlines()[0])
for words in ((), (None,), (0,), (3,), ("text",), ((1, 2),)):
    try:
        sys.exit(*words)
    except SystemExit as error:
        print(type(error).__name__, error.args, error.code, pickle.loads(pickle.dumps(error)).args)
try:
    sys.exit(1, 2)
except TypeError:
    print("too many")
try:
    sys.exit(status=1)
except TypeError:
    print("no keyword")
"""
    script = programs.file("script.py", source)
    assert programs.worker(script).seen == programs.plain(script).seen
