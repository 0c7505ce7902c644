"""A worker that was forked is what one that was started is: programs run both ways, and all they can see is compared.

What differs and is documented: modules that are there already, and what goes with them; two more frames on the stack;
objects that the garbage collector leaves alone; zero bytes behind the command line in /proc.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import zipfile

import pytest
from warm_sets import Sets

STATE = r"""
import sys
modules = sorted(sys.modules)
import atexit, ctypes, gc, io, json, locale, os, resource, select, signal, stat, subprocess, tempfile, threading, time
import warnings
main = sys.modules["__main__"]
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
def stream(one):
    if one is None:
        return None
    raw = one.buffer if isinstance(one.buffer, io.RawIOBase) else one.buffer.raw
    return {
        "text": [one.encoding, one.errors, one.line_buffering, one.write_through, one.newlines, one.mode, one.name,
                 one.fileno(), one.isatty(), one.readable(), one.writable(), one.seekable(), sorted(vars(one))],
        "buffer": [type(one.buffer).__name__, raw.name, raw.mode, raw.closefd, raw.seekable(), raw.fileno()],
        "own": [one is getattr(sys, "__%s__" % one.name.strip("<>")), os.fstat(one.fileno()).st_mode],
    }
def status(*names):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {name: lines[name].strip() for name in names}
def signals(name):
    # Two are the C library's own. A process that posix_spawn started ignores them until there are threads.
    return [number for number in map(int, signal.valid_signals()) if int(status(name)[name], 16) >> (number - 1) & 1]
def described(fd):
    link = os.readlink("/proc/self/fd/%d" % fd)
    is_device = link.startswith("/dev/") and "pts" not in link and "shm" not in link
    return link if is_device else stat.filemode(os.fstat(fd).st_mode)
fds = []
for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
    try:
        fds.append((fd, described(fd), os.get_inheritable(fd)))
    except OSError:
        pass
state = {
    "main": {name: str(getattr(main, name, "missing")) for name in (
        "__name__", "__file__", "__doc__", "__package__", "__cached__", "__annotations__", "__path__")},
    "main spec": repr(main.__spec__),
    "main loader": type(main.__loader__).__name__,
    "main loader of": [getattr(main.__loader__, name, "") for name in ("name", "path")],
    "builtins": main.__builtins__.__name__ if hasattr(main.__builtins__, "__name__") else "dict",
    "names": sorted(name for name in vars(main) if name.startswith("__")),
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "command line": open("/proc/self/cmdline").read().rstrip("\0"),
    "comm": open("/proc/self/comm").read(),
    "path": sys.path,
    "flags": repr(sys.flags),
    "xoptions": sys._xoptions,
    "warnoptions": sys.warnoptions,
    "filters": [str(filter) for filter in warnings.filters],
    "executable": [sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix],
    "meta_path": repr(sys.meta_path),
    "path_hooks": len(sys.path_hooks),
    "environ": list(os.environ.items()),
    "getenv": {name: repr(libc.getenv(os.fsencode(name))) for name in os.environ},
    "not ours": [libc.getenv(name) for name in (b"HOLDFAST_STARTUP", b"HOLDFAST_WORKER_PID", b"GONE_OF_TEST")],
    "child": sorted(subprocess.check_output("env", text=True, errors="surrogateescape").splitlines()),
    "child descriptors": subprocess.check_output(["ls", "/proc/self/fd"], text=True, close_fds=False),
    "descriptors": fds,
    "next descriptor": os.dup(0),
    # A fault handler that the interpreter installs is nobody's to Python, and then that of the kernel.
    "handlers": {int(number): str(signal.getsignal(number) or 0) for number in signal.valid_signals()},
    "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
    "pending": [sorted(map(int, signal.sigpending())), signal.set_wakeup_fd(-1)],
    "timers": [signal.getitimer(which) for which in (0, 1, 2)],
    "kernel": [status("Umask", "Threads", "NoNewPrivs", "Cpus_allowed"),
               [signals(name) for name in ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd")]],
    "threads": [thread.name for thread in threading.enumerate()],
    "thread": [threading.main_thread() is threading.current_thread(), threading.main_thread().native_id == os.getpid(),
               threading.get_native_id() == os.getpid(), threading.stack_size()],
    "hooks": [
        sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__,
        sys.displayhook is sys.__displayhook__, threading.excepthook is threading.__excepthook__,
        sys.gettrace() is None, sys.getprofile() is None, sys.breakpointhook is sys.__breakpointhook__,
        sys.exc_info(),
    ],
    "faulthandler": sys.modules["faulthandler"].is_enabled(),
    "own": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), os.getppid() > 1],
    "recursion": sys.getrecursionlimit(),
    "switch": sys.getswitchinterval(),
    "cwd": os.getcwd(),
    "limits": [resource.getrlimit(which) for which in range(10)],
    "nice": os.nice(0),
    "affinity": sorted(os.sched_getaffinity(0)),
    "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "stdin": sys.stdin.read() if not sys.stdin.isatty() else None,
    "locale": [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(), sys.getfilesystemencoding(),
               time.tzname],
    "gc": [gc.isenabled(), gc.get_threshold(), gc.callbacks, gc.garbage],
    "temporary": tempfile.gettempdir(),
    "dumpable": libc.prctl(3, 0, 0, 0, 0),
    "sitecustomize": repr(sys.modules.get("sitecustomize")),
    "cached imports": sorted(entry for entry in sys.path_importer_cache if "holdfast" in entry),
    "ours": [name for name in sys.modules if name.startswith("holdfast")],
}
text = json.dumps({"state": state, "modules": modules})
if "STATE_OF_TEST" in os.environ:
    with open(os.environ["STATE_OF_TEST"] + "." + os.environ["RANK"], "w") as file:
        file.write(text)
else:
    print(text)
"""

DIFFERENT_EACH_TIME = (
    "TORCHELASTIC_RUN_ID",
    "MASTER_PORT",
    "HOLDFAST_WORKER_PAGE",
    "TORCHELASTIC_ERROR_FILE",
    "STATE_OF_TEST",
    "JAX_COORD",
)
STACKS_DESCRIPTORS = range(200, 220)


def states_of_job(jobs, *words, warm, nproc=1, **options):
    """A job that has every worker say what it sees; and where that is."""
    target = jobs.directory / f"state.{warm}"
    env = {"STATE_OF_TEST": target, "GONE_OF_TEST": None, **options.pop("env", {})}
    options["options"] = (*(("--warm",) if warm else ()), *options.get("options", ("-r", "3")))
    return jobs.start(*words, nproc=nproc, env=env, **options), target


def states_seen(jobs, job, target, nproc):
    """What every worker of the job sees, by rank."""
    ended = jobs.wait(job)
    assert ended.code == 0, ended.stderr + "".join(worker.stderr for worker in ended.workers)
    assert ended.starts == target.name.endswith("True"), ended.stderr
    return [comparable((target.parent / f"{target.name}.{rank}").read_text()) for rank in range(nproc)]


def comparable(text):
    seen = json.loads(text)
    state = seen["state"]
    state["environ"] = [pair for pair in state["environ"] if not pair[0].startswith(DIFFERENT_EACH_TIME)]
    for name in [name for name in state["getenv"] if name.startswith(DIFFERENT_EACH_TIME)]:
        del state["getenv"][name]
    state["child"] = [line for line in state["child"] if not line.startswith(DIFFERENT_EACH_TIME)]
    return seen


def plain(value):
    """Addresses are others each time."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", value) if isinstance(value, str) else value


def differences(cold, warm):
    """What is not the same, and nothing else: an environment is long."""
    if isinstance(cold, dict) and isinstance(warm, dict):
        found = {name: differences(cold.get(name), warm.get(name)) for name in {**cold, **warm}}
        return {name: each for name, each in found.items() if each}
    if isinstance(cold, list) and isinstance(warm, list) and len(cold) == len(warm):
        return [each for pair in zip(cold, warm, strict=True) if (each := differences(*pair))]
    if isinstance(cold, list) and isinstance(warm, list):
        return {
            "cold": [each for each in cold if each not in warm],
            "warm": [each for each in warm if each not in cold],
        }
    return {} if plain(cold) == plain(warm) else {"cold": cold, "warm": warm}


def check_states(cold, warm):
    for theirs, mine in zip(cold, warm, strict=True):
        assert differences(theirs["state"], mine["state"]) == {}
        assert set(mine["modules"]) >= set(theirs["modules"]) - {"sitecustomize"}
    return warm[0]["state"]


@pytest.fixture
def compare_jobs(jobs):
    """Runs a job both ways, at the same time."""

    def compare(*words, nproc=1, **options):
        started = [states_of_job(jobs, *words, warm=warm, nproc=nproc, **options) for warm in (False, True)]
        return check_states(*[states_seen(jobs, job, target, nproc) for job, target in started])

    return compare


@pytest.fixture
def compare_state(jobs):
    """Runs sets of workers both ways."""
    made = {}

    def compare(*words, nproc=1, env=None, **popen):
        how = repr((env, popen))
        if how not in made:
            made[how] = Sets(jobs.directory, env={"GONE_OF_TEST": None, **(env or {})}, **popen)
        sets = made[how]
        found = []
        for warm in (False, True):
            ended = sets.run(*words, warm=warm, nproc=nproc)
            assert ended.codes == [0] * nproc, "".join(worker.stderr for worker in ended.workers)
            found.append([comparable(worker.stdout) for worker in ended.workers])
        return check_states(*found)

    yield compare
    for sets in made.values():
        sets.close()


class TestTheStateAProgramBeginsWith:
    @pytest.mark.parametrize("nproc", [1, 2])
    def test_a_script_of_a_job(self, jobs, compare_jobs, nproc):
        state = compare_jobs(jobs.file("script.py", STATE), "--lr", "0.1", "", nproc=nproc)
        assert state["argv"][1:] == ["--lr", "0.1", ""]
        assert state["not ours"] == [None, None, None]

    @pytest.mark.parametrize("nproc", [1, 2])
    def test_a_script(self, jobs, compare_state, nproc):
        compare_state(jobs.file("script.py", STATE), "--lr", "0.1", "", nproc=nproc)

    def test_a_script_by_a_relative_path(self, jobs, compare_state):
        jobs.file("inside/script.py", STATE)
        compare_state("inside/../inside/script.py")

    def test_a_module(self, jobs, compare_state):
        jobs.file("package_of_test/__init__.py", "")
        jobs.file("package_of_test/tool.py", STATE)
        compare_state("-m", "package_of_test.tool", "x")

    def test_a_package(self, jobs, compare_state):
        jobs.file("package_of_test/__init__.py", "")
        jobs.file("package_of_test/__main__.py", STATE)
        compare_state("-m", "package_of_test")

    def test_a_directory(self, jobs, compare_state):
        jobs.file("inside/__main__.py", STATE)
        compare_state("inside")

    def test_an_archive(self, jobs, compare_state):
        with zipfile.ZipFile(jobs.directory / "program.pyz", "w") as file:
            file.writestr("__main__.py", STATE)
        compare_state("program.pyz")

    def test_a_symbolic_link(self, jobs, compare_state):
        os.symlink(jobs.file("inside/script.py", STATE), jobs.directory / "link.py")
        compare_state("link.py")

    def test_compiled_code(self, jobs, compare_state):
        import py_compile

        py_compile.compile(jobs.file("script.py", STATE), cfile=str(jobs.directory / "compiled.pyc"))
        compare_state("compiled.pyc")

    def test_a_name_without_an_ending(self, jobs, compare_state):
        compare_state(jobs.file("program", STATE))

    def test_a_path_that_begins_here(self, jobs, compare_state):
        jobs.file("inside/script.py", STATE)
        compare_state("./inside/script.py")
        compare_state("././inside//script.py")

    @pytest.mark.parametrize(
        "path", ["", "/somewhere", "/somewhere:relative", ":/somewhere", "/somewhere:", "::", "/a:/a:/b"]
    )
    def test_a_python_path(self, jobs, compare_state, path):
        jobs.file("inside/script.py", STATE)
        compare_state("inside/script.py", env={"PYTHONPATH": path})

    @pytest.mark.parametrize(
        "env",
        [
            {"PYTHONSAFEPATH": "1", "PYTHONPATH": "/somewhere"},
            {"PYTHONOPTIMIZE": "2"},
            {"PYTHONDEVMODE": "1"},
            {"PYTHONFAULTHANDLER": "1"},
            {"PYTHONWARNINGS": "error::ResourceWarning,ignore"},
            {"PYTHONIOENCODING": "latin-1:replace"},
            {"PYTHONUTF8": "1", "LC_ALL": "C"},
            {"PYTHONUTF8": "0", "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"},
            {"PYTHONHASHSEED": "7"},
            {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"},
            {"TZ": "Asia/Kathmandu"},
            {"HOLDFAST_HOOKS": "0", "PYTHONFAULTHANDLER": "1"},
            {"OMP_NUM_THREADS": "3", "EMPTY_OF_TEST": "", "LONG_OF_TEST": "x" * 100_000},
            {"UMLAUT_ÄÖ": "ß\udcff\udc80\n=", "EQUALS_OF_TEST": "=a=b="},
        ],
        ids=str,
    )
    def test_variables(self, jobs, compare_state, env):
        path = jobs.file("script.py", STATE)
        if "PYTHONSAFEPATH" in env:
            env = {**env, "PYTHONPATH": f"{jobs.directory}:{env['PYTHONPATH']}"}
        compare_state(path, env=env)
        compare_state("-m", "script", env=env)

    @pytest.mark.parametrize("kind", ["script", "module"])
    def test_a_sitecustomize_of_the_users_own(self, jobs, compare_state, kind):
        jobs.file("path/sitecustomize.py", "import os\nos.environ['FROM_SITE'] = '1'\nVALUE = 1\n")
        words = {"script": [jobs.file("script.py", STATE)], "module": ["-m", "script"]}[kind]
        state = compare_state(*words, env={"PYTHONPATH": "path"})
        assert dict(state["environ"])["FROM_SITE"] == "1"

    def test_what_a_shell_gives_its_programs(self, jobs, compare_state):
        """Limits, a mask for new files, niceness, signals that are ignored."""

        def prepare():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.umask(0o027)
            os.nice(3)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
            os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])

        state = compare_state(jobs.file("script.py", STATE), nproc=2, preexec_fn=prepare)
        assert state["nice"] == 3
        assert state["mask"] == [signal.SIGUSR2]
        assert state["limits"][resource.RLIMIT_NOFILE] == [64, 4096]

    def test_descriptors_that_the_agent_was_given(self, jobs, compare_state):
        reader, writer = os.pipe()
        with open(os.devnull) as null, os.fdopen(reader), os.fdopen(writer, "w"):
            compare_state(jobs.file("script.py", STATE), pass_fds=(reader, writer, null.fileno()))

    def test_what_imports_do_to_the_process(self, jobs, compare_state):
        """A library may set variables, open files, change what Python does: a program that imports it has all that."""
        jobs.file(
            "installed/site-packages/library_of_test.py",
            "import gc, locale, os, sys, threading, warnings\n"
            "os.environ['FROM_LIBRARY'] = 'ß'\n"
            "os.environ.setdefault('ALSO_FROM_LIBRARY', '1')\n"
            "os.environ.pop('GONE_OF_TEST', None)\n"
            "os.putenv('BEHIND_THE_BACK', '1')\n"
            "warnings.simplefilter('ignore', ResourceWarning)\n"
            "gc.set_threshold(1000, 20, 20)\n"
            "sys.setrecursionlimit(2345)\n"
            "threading.stack_size(1 << 20)\n"
            "urandom = open('/dev/urandom', 'rb')\n"
            "itself = open(__file__)\n"
            "itself.readline()\n"
            "os.set_inheritable(itself.fileno(), True)\n",
        )
        script = jobs.file("script.py", f"import library_of_test\nHERE = library_of_test.itself.tell()\n{STATE}")
        state = compare_state(
            script, nproc=2, env={"PYTHONPATH": "installed/site-packages", "GONE_OF_TEST": "1", "STATE_OF_TEST_": "1"}
        )
        assert dict(state["environ"])["FROM_LIBRARY"] == "ß"
        assert "BEHIND_THE_BACK=1" in state["child"]
        assert "GONE_OF_TEST" not in dict(state["environ"])
        assert state["recursion"] == 2345


LIBRARY = "import os, sys\nSEEN = [os.environ.get('A_OF_TEST'), os.environ.get('B_OF_TEST')]\nWHERE = __file__\n"


class TestWhatAProgramDoesBeforeItsImports:
    """An import finds what the program has set for it, and the place that the program has put first."""

    def both(self, jobs, source, **env):
        jobs.file("installed/site-packages/library_of_test.py", LIBRARY)
        jobs.file("vendored/library_of_test.py", LIBRARY)
        source = f"import sys\nIS_WARM = 'library_of_test' in sys.modules\n{source}\n"
        path = jobs.file("script.py", f"{source}print(library_of_test.SEEN, library_of_test.WHERE)\nprint(IS_WARM)\n")
        sets = Sets(jobs.directory, env={"PYTHONPATH": "installed/site-packages", **env})
        try:
            cold, warm = (sets.run(path, warm=warm).workers[0].stdout.splitlines() for warm in (False, True))
        finally:
            sets.close()
        assert warm[:-1] == cold[:-1]
        assert cold[-1] == "False"
        return warm

    def test_variables(self, jobs):
        source = (
            "import os\nprint(os.environ.get('A_OF_TEST'))\nos.environ['A_OF_TEST'] = '1'\n"
            "os.environ.pop('B_OF_TEST', None)\nimport library_of_test"
        )
        assert self.both(jobs, source, B_OF_TEST="2") == [
            "None",
            f"['1', None] {jobs.directory}/installed/site-packages/library_of_test.py",
            "True",
        ]

    def test_variables_that_nobody_can_tell(self, jobs):
        source = "import os\nos.environ['A_OF_TEST'] = os.getcwd()[:0] + 'x'.upper()\nimport library_of_test"
        assert self.both(jobs, source)[-1] == "False"

    def test_a_place_that_comes_first(self, jobs):
        source = (
            "import os\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'vendored'))\nimport library_of_test"
        )
        assert self.both(jobs, source) == [f"[None, None] {jobs.directory}/vendored/library_of_test.py", "False"]

    def test_an_import_that_is_not_done(self, jobs):
        source = "if sys.argv[1:]:\n    import library_of_test\nlibrary_of_test = sys\nsys.SEEN = sys.WHERE = 0"
        assert self.both(jobs, source)[-1] == "False"

    def test_one_line_says_what_is_left_to_the_workers(self, jobs):
        jobs.file("installed/site-packages/library_of_test.py", LIBRARY)
        script = jobs.file("script.py", "import os\nos.environ.update(os.environ)\nimport library_of_test\n")
        ended = jobs.run(script, options=("--warm", "-r", "3"), env={"PYTHONPATH": "installed/site-packages"})
        assert ended.code == 0
        imported, left = ended.remarks
        assert imported.startswith("the template has imported")
        assert left == f"{script}:2 changes os.environ: each worker does the imports after that by itself"


class TestStreams:
    @pytest.mark.parametrize(
        "options", [("-r", "3"), ("-t", "3"), ("-r", "1"), ("-t", "2"), (), ("-r", "0:3")], ids=str
    )
    def test_where_they_lead(self, jobs, compare_jobs, options):
        compare_jobs(jobs.file("script.py", STATE), nproc=2, options=options)

    def test_input(self, jobs):
        source = jobs.file("input", "ä line\nanother\n")
        script = jobs.file("script.py", STATE)
        found = []
        for warm in (False, True):
            with open(source) as stdin:
                job, target = states_of_job(jobs, script, warm=warm, stdin=stdin)
                found.append(states_seen(jobs, job, target, 1))
        assert check_states(*found)["stdin"] == "ä line\nanother\n"

    @pytest.mark.parametrize("options", [(), ("-r", "1"), ("-t", "3")], ids=str)
    def test_a_terminal(self, jobs, compare_jobs, options):
        state = compare_jobs(jobs.file("script.py", STATE), options=options, terminal=True)
        assert state["streams"][2]["text"][8] is ("-t" not in options)

    @pytest.mark.parametrize("closed", [[0], [1], [0, 1]], ids=str)
    def test_streams_that_are_closed(self, jobs, compare_jobs, closed):
        """On stderr the agent says whether the start was a warm one."""
        compare_jobs(jobs.file("script.py", STATE), preexec_fn=lambda: [os.close(fd) for fd in closed])
