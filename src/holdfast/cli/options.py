"""The options of ``holdfast run`` as one table: torchrun 2.13's, with the same names and defaults, and ours.

The parser, its help, the alternative spelling of each name (``--log_dir``) and its variable (``PET_LOG_DIR``) are
derived from the table.
"""

from __future__ import annotations

from argparse import ArgumentTypeError

from holdfast.settings import RESTART_POLICIES, STORE_HOSTS, JobSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

START_METHODS = ("spawn", "fork", "forkserver")
NUMA_BINDINGS = ("node", "socket", "exclusive", "core-complex")


class Unsaid(int):
    """A default value, distinguishable from the same number given by the user."""


# The functions below are argparse types. Their messages begin with the value, so that the parser can put the name of
# the flag or variable before it.


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r}: write a whole number") from None


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r}: write a number such as 0.5") from None


def comma_separated(text: str) -> list[str]:
    """Split at commas. Two commas in a row are one comma within an item."""
    # NUL stands in for such a comma: no argument or variable can contain it.
    return [item.replace("\0", ",") for item in text.replace(",,", "\0").split(",")]


def one_of(*choices: str) -> Callable[[str], str]:
    """Accept one of `choices`. Unlike argparse's own choices, this also checks values from the environment."""

    def choice(text: str) -> str:
        if text not in choices:
            raise ArgumentTypeError(f"{text!r}: write one of {', '.join(choices)}")
        return text

    return choice


class Option:
    """An option: its names (a short one first, if any), and its arguments for argparse.

    Without a `metavar` it is a flag. `has_variable` is whether the environment can set its default. `is_ours` marks
    options that torchrun does not have.
    """

    __slots__ = ("default", "has_variable", "help", "is_ours", "metavar", "names", "of_type")

    def __init__(
        self,
        *names: str,
        help: str,  # noqa: A002 - argparse's name
        metavar: str | None = None,
        default: object = None,
        of_type: Callable[[str], object] = str,
        has_variable: bool = True,
        is_ours: bool = False,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.default = default
        self.of_type = of_type
        self.has_variable = has_variable
        self.is_ours = is_ours

    @property
    def is_flag(self) -> bool:
        return self.metavar is None

    @property
    def dest(self) -> str:
        return self.names[-1].removeprefix("--").replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        """All accepted spellings: with dashes, and with underscores."""
        return tuple(dict.fromkeys([*self.names, f"--{self.dest}"]))

    def __repr__(self) -> str:
        return f"Option({self.names[-1]})"


GROUPS: dict[str, tuple[Option, ...]] = {
    "how many": (
        Option(
            "--nnodes",
            metavar="N|MIN:MAX",
            default="1:1",
            help="the number of nodes (machines) of the job, or the minimum and maximum it can run on",
        ),
        Option(
            "--nproc-per-node",
            metavar="N|WORD",
            default="1",
            help="the number of workers on this node; or cpu, gpu or xpu for one worker per device of that kind, or "
            "auto for the first of gpu, xpu and cpu that the node has",
        ),
    ),
    "what is run": (
        Option("-m", "--module", help="the script is the name of a module, as in python -m"),
        Option("--no-python", help="run the script as a program, without Python"),
        Option(
            "--run-path",
            help="run the script as a function in a multiprocessing child (see --start-method) instead of a "
            "Python command; goes before --no-python",
        ),
        Option(
            "--start-method",
            metavar="METHOD",
            default="spawn",
            of_type=one_of(*START_METHODS),
            help=f"how the children of --run-path are started: {', '.join(START_METHODS)}",
        ),
        Option(
            "--warm",
            is_ours=True,
            help="fork the workers, at the start and at every restart, from a process that has imported what the "
            "script imports at its top level",
        ),
        Option(
            "--warm-imports",
            metavar="MODULES",
            default=[],
            of_type=comma_separated,
            is_ours=True,
            help="import these modules in that process instead, such as torch,numpy; implies --warm",
        ),
        Option("--role", metavar="NAME", default="default", help="the name of this group of workers"),
    ),
    "keeping it running": (
        Option(
            "--max-restarts",
            metavar="N",
            default=0,
            of_type=whole_number,
            help="how often all workers are restarted after one has failed",
        ),
        Option(
            "--restart-window",
            metavar="SECONDS",
            default=JobSettings.restart_window,
            of_type=number,
            is_ours=True,
            help="if workers ran this long before one failed, all of --max-restarts is available again; 0 counts "
            "restarts over the whole job",
        ),
        Option(
            "--restart-policy",
            metavar="WORD",
            default=JobSettings.restart_policy,
            of_type=one_of(*RESTART_POLICIES),
            is_ours=True,
            help="auto does not restart if that cannot help (a syntax error, a missing module, wrong arguments, the "
            "same exception at the same line twice within seconds), and pauses before a restart after repeated faults "
            "of machines; always restarts at once, as torchrun does",
        ),
        Option(
            "--strict-exit",
            is_ours=True,
            help="count a worker as failed if it crashes after its program has succeeded, while its interpreter exits; "
            "by default it counts as a success, with a warning",
        ),
        Option(
            "--hang-timeout",
            metavar="SECONDS",
            default=JobSettings.hang_timeout,
            of_type=number,
            is_ours=True,
            help="a worker without progress for this long has failed; progress means heartbeats (holdfast.worker) if "
            "the worker sends them, otherwise output or CPU use; the stacks of all workers are kept; 0 for no limit",
        ),
        Option(
            "--signals-to-handle",
            metavar="NAMES",
            default=JobSettings.signals_to_handle,
            help="signals that end the job; they are passed on to the workers",
        ),
        Option(
            "--shutdown-timeout",
            metavar="SECONDS",
            of_type=whole_number,
            help="how long workers have to exit when they are stopped, before they are killed (default: "
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30)",
        ),
        Option(
            "--exit-barrier-timeout",
            metavar="SECONDS",
            default=JobSettings.exit_barrier_timeout,
            of_type=number,
            is_ours=True,
            help="how long a node whose workers are done waits for the other nodes",
        ),
        Option(
            "--stop-grace",
            metavar="SECONDS",
            default=JobSettings.stop_grace,
            of_type=number,
            is_ours=True,
            help="how long workers that listen for stop requests (holdfast.worker) have to end by themselves, for "
            "example to save a checkpoint, when nodes join or leave or this node is asked to stop",
        ),
        Option(
            "--monitor-interval",
            metavar="SECONDS",
            default=0.1,
            of_type=number,
            help="how often a rendezvous that must be polled is polled; workers are never polled",
        ),
    ),
    "several nodes (rendezvous)": (
        Option(
            "--standalone",
            help="run on this node alone: no configuration, and no port that another job may need",
        ),
        Option(
            "--rdzv-backend",
            metavar="NAME",
            default="static",
            help="how nodes find each other: static, c10d, etcd or a plug-in",
        ),
        Option(
            "--rdzv-endpoint",
            metavar="HOST[:PORT]",
            default="",
            help="where nodes meet; the backend static also takes --master-addr and --master-port",
        ),
        Option("--rdzv-id", metavar="ID", default="none", help="the id of the job, the same on all its nodes"),
        Option("--rdzv-conf", metavar="K=V,...", default="", help="settings of the backend"),
        Option(
            "--node-rank",
            metavar="N",
            default=Unsaid(0),
            of_type=whole_number,
            help="the rank of this node; the backend static needs it, c10d and etcd honour it",
        ),
        Option(
            "--master-addr",
            metavar="HOST",
            default="127.0.0.1",
            help="the address of node 0, with the backend static",
        ),
        Option(
            "--master-port",
            metavar="PORT",
            of_type=whole_number,
            help="the port of node 0, with the backend static (default: any free port for one node, otherwise 29500)",
        ),
        Option(
            "--store-host",
            metavar="WHO",
            default=JobSettings.store_host,
            of_type=one_of(*STORE_HOSTS),
            is_ours=True,
            help="who serves the workers' store at MASTER_ADDR:MASTER_PORT: agent, or rank0 (the worker)",
        ),
        Option("--local-addr", metavar="HOST", help="the address at which other nodes reach this one"),
    ),
    "output": (
        Option(
            "--log-dir",
            metavar="DIR",
            help="the directory for log files (default: a new temporary directory); /dev/null for no logs",
        ),
        Option(
            "-r",
            "--redirects",
            metavar="STREAMS",
            default="0",
            help="write to log files: 0 nothing, 1 stdout, 2 stderr, 3 both; or by local rank, such as 0:3,1:2",
        ),
        Option(
            "-t",
            "--tee",
            metavar="STREAMS",
            default="0",
            help="write to log files and the console; values as above",
        ),
        Option(
            "--local-ranks-filter",
            metavar="RANKS",
            default="",
            help="show only the output of these local ranks, such as 0,1 (log files have all of it)",
        ),
        Option(
            "--duplicate-stdout-filters",
            metavar="TEXTS",
            default=[],
            of_type=comma_separated,
            help="copy lines of tee'd stdout that contain one of these texts to filtered_stdout.log; a comma inside a "
            "text is written twice",
        ),
        Option(
            "--duplicate-stderr-filters",
            metavar="TEXTS",
            default=[],
            of_type=comma_separated,
            help="the same for stderr, to filtered_stderr.log",
        ),
        Option(
            "--event-log-handler",
            metavar="NAME",
            default="null",
            help="where events go in addition to the log directory: null, console or an installed handler",
        ),
        Option("--logs-specs", metavar="NAME", has_variable=False, help="an installed replacement for log files"),
    ),
    "GPUs": (
        Option(
            "--virtual-local-rank",
            help="each worker sees only its own GPU, and LOCAL_RANK is 0 in all of them",
        ),
        Option(
            "--numa-binding",
            metavar="MODE",
            of_type=one_of(*NUMA_BINDINGS),
            has_variable=False,
            help=f"bind each worker to the CPUs near its GPU: {', '.join(NUMA_BINDINGS)}",
        ),
    ),
}
"""The options by heading of the help."""

OWN_OPTIONS = tuple(option for options in GROUPS.values() for option in options if option.is_ours)
"""The options that torchrun does not have. Each but ``--warm-imports`` is a field of `JobSettings`."""

OURS = frozenset(option.dest for option in OWN_OPTIONS)
