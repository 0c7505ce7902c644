"""Does what a reader of a page would do: `python page_session.py PAGE DIRECTORY` runs its blocks in their order.

The directory becomes what a reader has: a clone of the project with its virtual environment, and a `train.py`. It is
started in namespaces of its own (see `in_own_namespaces`): ports are free there, machines can be made, and all that
was started ends with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from page_blocks import RUN, Block, blocks_of
from page_output import missing_line

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = Path(__file__).parent / "page_programs"

COMMAND_MAX_S = 240.0
"""How long one command may take."""

AGAIN_MAX_S = 60.0
"""How long a reader would look again until a command shows what the page does."""

_MADE_UP = re.compile(r"(?<![\w.])/(tmp|shared|srv|logs|home/me)/")
"""Places that pages speak of; here they are in the reader's directory."""

_SESSION = """\
. ./.session 2> /dev/null
cd "${PAGE_DIRECTORY:-.}"
%s
code=$?
PAGE_DIRECTORY=$PWD
export PAGE_DIRECTORY
export -p > "$PAGE_HOME/.session"
exit $code
"""


class PageError(Exception):
    """A block that did not do what the page says."""


def in_own_namespaces(page: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run all of a page, with nothing of it left afterwards."""
    namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    enter = 'mount -t tmpfs none /run && ip link set lo up && exec "$@"'
    return subprocess.run(
        [*namespaces, "sh", "-c", enter, "sh", sys.executable, __file__, str(page), str(directory)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


class Session:
    """One reader, from the top of the page to its end."""

    def __init__(self, page: Path, directory: Path) -> None:
        self._blocks = [block for block in blocks_of(page, ROOT) if block.language in RUN]
        self._directory = directory
        self._environment = reader_environment(directory)
        self._stack = contextlib.ExitStack()
        self._background = contextlib.ExitStack()
        self._machines: dict[str, list[str]] = {}
        self._scripts = 0

    def run(self) -> None:
        make_clone(self._directory)
        with self._stack, self._background:
            for block in self._blocks:
                if block.is_run:
                    began = time.monotonic()
                    self._run(block)
                    print(f"{block.name}: {time.monotonic() - began:.1f} s", flush=True)

    def _run(self, block: Block) -> None:
        if "part-of" in block.needs:
            check_part(block, ROOT / block.needs["part-of"])
            return
        with self._surroundings(block):
            if block.file_name and self._is_used_later(block):
                self._write(block.file_name, block.text)
            elif block.language == "python":
                self._run_python(block)
            else:
                self._run_commands(block)

    @contextlib.contextmanager
    def _surroundings(self, block: Block):
        """What the block needs to be there."""
        needs = block.needs
        train = self._directory / "train.py"
        train.unlink(missing_ok=True)
        shutil.copy(PROGRAMS / f"{needs.get('train', 'quick')}.py", train)
        if block.machines and not self._machines:
            self._make_machines()
        if "slurm" in needs and "SLURM_CONF" not in self._environment:
            self._make_slurm(block)
        if "instead" in needs:
            self._background.close()
        if "after-job" in needs:
            self._run_failing_job()
        with contextlib.ExitStack() as meanwhile:
            if "running-job" in needs:
                meanwhile.enter_context(self._running_job())
            if "waiting" in needs:
                meanwhile.enter_context(self._waiting_agent(needs["waiting"]))
            if "waits-for" in needs:
                self._wait_for_file(needs["waits-for"])
            yield

    def _wait_for_file(self, name: str) -> None:
        path = self._directory / self._moved(name)
        deadline = time.monotonic() + COMMAND_MAX_S
        while not path.exists():
            if time.monotonic() > deadline:
                raise PageError(f"{name} does not come into being")
            time.sleep(0.02)

    # Commands

    def _run_commands(self, block: Block) -> None:
        *before, (last, shown) = block.commands
        for command, its_shown in before:
            self._check(block, command, its_shown, 0 if "exit" not in block.needs else None)
        if "background" in block.needs:
            for prefix in self._prefixes(block, last):
                self._background.callback(_end, self._start(self._moved(last), prefix))
        else:
            self._check_last(block, last, shown)

    def _check_last(self, block: Block, command: str, shown: list[str]) -> None:
        deadline = time.monotonic() + AGAIN_MAX_S
        while True:
            try:
                self._check(block, command, shown, int(block.needs.get("exit", "0")))
            except PageError:
                if "eventually" not in block.needs or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)  # a reader would look again, too
            else:
                return

    def _check(self, block: Block, command: str, shown: list[str], code: int | None) -> None:
        started = [self._start(self._moved(command), prefix) for prefix in self._prefixes(block, command)]
        for process in started:
            printed = self._wait(process, command)
            problem = f"ended with {process.returncode}" if process.returncode != (code or 0) else ""
            if code is None and process.returncode in (0, int(block.needs["exit"])):
                problem = ""
            if not problem and (line := missing_line(shown, printed)) is not None:
                problem = f"did not print the line\n{line}"
            if problem:
                raise PageError(f"{block.name}: `{command}` {problem}\nIt printed:\n{printed}")

    def _prefixes(self, block: Block, command: str) -> list[list[str]]:
        """What makes the command run on each machine that the block says."""
        if "slurm" in block.needs:
            return [self._machines[block.machines[0]]]
        if "on" in block.needs or ("nodes" in block.needs and "holdfast run" in command):
            return [self._machines[name] for name in block.machines]
        return [[]]

    def _moved(self, text: str) -> str:
        """The page's text, with the places that it speaks of in the reader's directory."""
        return _MADE_UP.sub(lambda found: f"{self._directory}/made-up/{found[1]}/", text)

    def _start(self, command: str, prefix: list[str] | tuple[str, ...] = ()) -> subprocess.Popen[str]:
        # In a file: what a reader types is in no command line that pgrep sees.
        self._scripts += 1
        script = self._directory / f".command-{self._scripts}"
        script.write_text(_SESSION % command)
        return subprocess.Popen(
            [*prefix, "bash", script.name],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _wait(self, process: subprocess.Popen[str], command: str) -> str:
        try:
            return process.communicate(timeout=COMMAND_MAX_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise PageError(f"`{command}` took more than {COMMAND_MAX_S} s: {process.communicate()[0]}") from None

    # Files, and Python

    def _is_used_later(self, block: Block) -> bool:
        later = [text for each in self._blocks if each.line > block.line for text, _ in each.commands]
        return any(block.file_name in text for text in later)

    def _write(self, name: str, text: str) -> None:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _run_python(self, block: Block) -> None:
        name = block.file_name or "block.py"
        self._write(name, block.text)
        command = f"python -q -i - < {name} 2> prompts" if "notebook" in block.needs else f"python {name}"
        shown = [block.needs["prints"]] if "prints" in block.needs else []
        self._check(block, command, shown, int(block.needs.get("exit", "0")))

    # Surroundings

    def _run_failing_job(self) -> None:
        shutil.copy(PROGRAMS / "failing.py", self._directory / "failing.py")
        process = self._start("holdfast run --nproc-per-node 2 failing.py")
        self._wait(process, "a failing job")
        assert process.returncode == 1

    @contextlib.contextmanager
    def _running_job(self):
        """Eight workers, of which each has said that it is where it stays."""
        sign = self._directory / "sign"
        os.mkfifo(sign)
        listener = os.open(sign, os.O_RDWR)
        program = PROGRAMS / "stuck" / "train.py"
        process = self._start(f"exec holdfast run --rdzv-id job7 --nproc-per-node 8 {program} {sign}")
        try:
            for _ in range(8):
                assert select.select([listener], [], [], COMMAND_MAX_S)[0], "the job does not come to run"
                os.read(listener, 1)
            yield
        finally:
            _end(process)
            os.close(listener)
            sign.unlink()

    @contextlib.contextmanager
    def _waiting_agent(self, machine: str):
        flags = f"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint {machine}:29400 --rdzv-id job7"
        command = f"HOLDFAST_TOKEN='the token of another job' exec holdfast run {flags} train.py"
        process = self._start(command, self._machines[machine])
        try:
            yield
        finally:
            _end(process)

    def _make_machines(self) -> None:
        """All that the page speaks of. Each has a /var/lib of its own, where systems keep their services' data."""
        from network import Network

        used = {name for block in self._blocks for name in block.machines}
        names = sorted(used | {block.needs["waiting"] for block in self._blocks if "waiting" in block.needs})
        network = Network(len(names))
        for node, name in zip(network.nodes, names, strict=True):
            node.hostname = name
        self._stack.enter_context(network)
        own = ["sh", "-c", 'mount -t tmpfs none /var/lib && exec "$@"', "sh"]
        self._machines = {node.hostname: [*node.prefix, *own] for node in network.nodes}

    def _make_slurm(self, block: Block) -> None:
        from slurm_cluster import SlurmCluster

        machines = {name: self._machines[name] for name in block.machines}
        # Below /run, which is the namespace's own: the path of a socket has to be short.
        cluster = self._stack.enter_context(SlurmCluster(machines, Path("/run/slurm")))
        self._environment.update(cluster.variables)


def _end(process: subprocess.Popen[str]) -> None:
    """Ask it to stop, as Ctrl-C does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=COMMAND_MAX_S)


def check_part(block: Block, file: Path) -> None:
    """Every line of the block is one of the file's, but for how far it is indented and what is said of it."""
    lines = {line.partition("  # ")[0].strip() for line in file.read_text().splitlines()}
    for line in block.text.splitlines():
        if line.strip() and line.strip() not in lines:
            raise PageError(f"{block.name}: {file.name} has no line\n{line}")


def reader_environment(directory: Path) -> dict[str, str]:
    steers = ("PET_", "TORCHELASTIC_", "HOLDFAST_", "TORCH_", "SLURM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(steers)}
    temporary = Path("/run/reader")  # the namespace's own, and as short as readers' are
    temporary.mkdir()
    return {
        **kept,
        "PATH": f"{directory}/.venv/bin:{os.path.dirname(sys.executable)}:{kept['PATH']}",
        "XDG_STATE_HOME": str(directory / "state"),
        "TMPDIR": str(temporary),
        "HOLDFAST_TOKEN": "the token of a reader",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
        "PAGE_HOME": str(directory),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def make_clone(directory: Path) -> None:
    """What `git clone` and an earlier `make` would leave, by links: nothing here is installed or built again."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and entry.name != "build":
            (directory / entry.name).symlink_to(entry)
    venv = directory / ".venv"
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith("."):
            (venv / entry.name).symlink_to(entry)
    for made in re.findall(r"^\$\(VENV\)/(\.\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE):
        (venv / made).touch()
    for place in ("tmp", "shared", "srv", "logs", "home/me"):
        (directory / "made-up" / place).mkdir(parents=True)


def main(page: str, directory: str) -> None:
    try:
        Session(Path(page), Path(directory)).run()
    except PageError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
