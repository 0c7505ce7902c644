"""The agent's end of a template: starts it, waits for its imports, requests keepers."""

from __future__ import annotations

import marshal
import os
import select
import signal
import time
from contextlib import contextmanager, suppress

from holdfast.logger import get_logger
from holdfast.processes.interruption import SignalWakeUp, Uninterrupted, handlers
from holdfast.processes.keeper_client import LostTemplateError, NoTemplateError
from holdfast.processes.signal_setup import SignalSetup
from holdfast.signals import name_of
from holdfast.waiting import poll_ms
from holdfast.warm.answers import DESCRIPTORS_MAX, MESSAGE_MAX_BYTES, decode, process_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence
    from typing import Any

    from holdfast.processes.launch import LastWill

ANSWER_WAIT_S = 30.0
"""The timeout of an answer. A template that does not answer in time is abandoned."""

END_WAIT_S = 1.0
"""How long a template may take to exit after its socket closed, before it is killed."""

IMPORTS_MAX_S = 300.0
"""How long workers that could start wait for the imports; after that they start cold."""

DEATHS_MAX = 3
"""After so many templates died during their imports, the agent starts no other."""

_ANSWER_FDS = 1

TOO_OLD = 78
"""The exit code of an interpreter that is too old for holdfast."""

_BOOT = (
    f"import sys; sys.version_info >= (3, 11) or sys.exit({TOO_OLD}); modules = [*sys.modules]; "
    # Find our package by its path. Everything else is found as in the workers, without the directory that -c adds.
    "del sys.path[: 1 - sys.flags.safe_path]; sys.path.insert(0, sys.argv[1]); import holdfast; del sys.path[0]; "
    "from holdfast.warm.zygote import serve; program = serve(int(sys.argv[2]), modules); "
    "del sys, modules, holdfast, serve; program()"
)
# The words after the two arguments are for ps and pkill: the program that the workers will run.

_NOTHING: tuple[bytes, list[int], int, None] = (b"", [], 0, None)

log = get_logger(__name__)


class Template:
    """A process that workers are forked from. It is replaced when it has died or is out of date.

    `command` is what a worker runs, ``python -u [-m] program arguments``. For functions it is the interpreter alone,
    and `source` is the file that they are in. `modules` are the modules to import, or None for the program's imports.
    """

    def __init__(self, command: Sequence[str], modules: Sequence[str] | None = None, source: str | None = None) -> None:
        self._command = list(command)
        self._modules = None if modules is None else list(modules)
        self._source = source
        self._control: socket.socket | None = None
        self._pid = -1
        self._has_imported = False
        self._importing = ""
        self._is_hopeless = False
        self._deaths = 0
        self._exit_code: int | None = None  # of the last template, if it ended by itself

    @property
    def pid(self) -> int:
        """Its process id; -1 without a process."""
        return self._pid

    def start(self) -> None:
        """Start the imports; returns at once. Does nothing while the template lives."""
        if self._control is not None or self._is_hopeless:
            return
        if option := _option_in(self._command[1:]):
            self._give_up(f"{option} is an option of the interpreter")
            return
        import socket

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        python = self._command[0]
        try:
            self._pid = os.posix_spawnp(
                python,
                [python, *self._flags(), "-c", _BOOT, root, str(theirs.fileno()), *self._command[1:]],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), theirs.fileno())],
                setsid=True,  # Ctrl-C on a terminal goes to the agent only
            )
        except (OSError, NotImplementedError) as error:
            ours.close()
            self._give_up(f"{python} cannot be started: {getattr(error, 'strerror', '') or error}")
            return
        finally:
            theirs.close()
        self._control, self._has_imported, self._importing = ours, False, ""
        self._send_brief()

    def _flags(self) -> list[str]:
        if len(self._command) > 1:
            return ["-u"]
        import subprocess

        # As multiprocessing starts its children.
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - as it does
        return flags

    def _send_brief(self) -> None:
        brief = {
            "words": self._command[1:],
            "modules": self._modules,
            "source": self._source,
            "env": dict(os.environ),
            "hooks": _hooks_file() if os.environ.get("HOLDFAST_HOOKS") != "0" else "",
            "agent_pid": os.getpid(),
        }
        with _file_with(brief) as fd:
            self._send(b"brief", [fd])  # if it has died, the next receive will notice

    def is_ready(self) -> bool:
        """Whether workers can be forked from it now; waits for its imports. A signal raises.

        A template that has died is replaced for the next time, and this time workers start cold. A template is replaced
        now if files that it imported have changed since.
        """
        if self._has_imported and self._is_out_of_date():
            self.close()
            self.start()
        if not self._has_imported and self._control is not None:
            self._wait_for_imports()
        is_ready = self._has_imported
        self.start()
        return is_ready

    def _wait_for_imports(self) -> None:
        deadline = time.monotonic() + IMPORTS_MAX_S
        said, _ = self._receive(IMPORTS_MAX_S)
        while "importing" in said and time.monotonic() < deadline:
            self._importing = f" import {said['importing']}"
            said, _ = self._receive(max(0.0, deadline - time.monotonic()))
        if said.get("problem"):
            self._give_up(f"{said['problem']}")
        elif "modules" in said:
            self._has_imported, self._deaths = True, 0
            log.info("the template has imported %s modules", said["modules"])
            if said.get("left"):
                log.warning("%s: each worker does the imports after that by itself", said["left"])
            if said.get("failed"):
                log.warning("--warm-imports: %s; workers will import it themselves", said["failed"])
        elif time.monotonic() >= deadline:
            self._give_up(f"the template has waited for{self._importing or ' Python'} for {IMPORTS_MAX_S:.0f} s")
        else:
            self._deaths += 1
            if self._exit_code == TOO_OLD:
                self._give_up(f"{self._command[0]} is older than Python 3.11")
            elif self._deaths < DEATHS_MAX:
                log.warning("the template died of%s: workers start cold this time", self._cause_of_death())
            else:
                self._give_up(f"the template died of{self._cause_of_death()}, {self._deaths} times")

    def _is_out_of_date(self) -> bool:
        said, _ = self._ask(b"fresh", [])
        if said.get("stale"):
            log.info("%s has changed: a new template is made", said["stale"])
        elif not said:
            log.warning("the template has died%s: workers start cold this time", self._how_it_ended())
        return "stale" in said

    def fork_keeper(
        self,
        launches: list[tuple[object, ...]],
        ends: tuple[int, int, int],
        fds: Sequence[int],
        will: LastWill | None = None,
    ) -> tuple[int, int]:
        """Fork a keeper of `launches` from the template. Returns its process id and a pidfd.

        Raises:
            NoTemplateError: the template cannot do that.
            LostTemplateError: it may have done so, and did not answer.
        """
        signals = SignalSetup.block_all()
        signals.unblock()
        numbers = sorted(set(fds))
        wills = [] if will is None else [will.fd]
        request = {
            "launches": launches,
            "fds": numbers,
            "will": None if will is None else list(will.command),
            "agent_pid": os.getpid(),
            "signals": signals.plain(),
        }
        directory = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _file_with(request) as brief:
                said, received = self._ask(b"fork", [brief, directory, *ends, *wills, *numbers])
        finally:
            os.close(directory)
        keeper = process_in(said.get("keeper", ""))
        if keeper and received:
            return keeper, received[0]
        for fd in received:
            os.close(fd)
        if "refused" in said:
            error = NoTemplateError(said["refused"])
        else:
            if self._control is not None:  # it lives, and has answered with nonsense
                self.close()
            error = LostTemplateError(f"the template has died{self._how_it_ended()}")
        log.warning("workers start cold this time: %s", error)
        self.start()
        raise error

    def close(self) -> None:
        """End the template. Its keepers continue."""
        control, self._control = self._control, None
        can_end_itself, self._has_imported = self._has_imported, False
        self._exit_code = None
        if control is not None:
            has_ended = _has_ended(self._pid)  # without our help
            control.close()
            with suppress(ProcessLookupError, ChildProcessError):
                if can_end_itself:  # and kill what a killed keeper has left
                    os.kill(self._pid, signal.SIGCONT)
                    _wait_for_end(self._pid)
                # Our child, unreaped, and its group: an import may have started processes.
                os.killpg(self._pid, signal.SIGKILL)
                _, status = os.waitpid(self._pid, 0)
                if has_ended:
                    self._exit_code = os.waitstatus_to_exitcode(status)
            self._pid = -1

    def _cause_of_death(self) -> str:
        return f"{self._importing or ' its imports'}{self._how_it_ended()}"

    def _how_it_ended(self) -> str:
        code = self._exit_code
        if code is None or code >= 0:
            return ""
        return f" ({name_of(-code)})"

    # Messages

    def _ask(self, what: bytes, fds: Sequence[int]) -> tuple[dict[str, str], list[int]]:
        """The template's answer; empty if it has died or does not respond."""
        if self._control is None:
            return {}, []
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)  # our child, unreaped; it may have been stopped
        if not self._send(what, fds):
            self.close()
            return {}, []
        return self._receive(ANSWER_WAIT_S)

    def _send(self, what: bytes, fds: Sequence[int]) -> bool:
        import socket

        assert self._control is not None
        try:
            for first in range(0, max(len(fds), 1), DESCRIPTORS_MAX):
                chunk = fds[first : first + DESCRIPTORS_MAX]
                is_last = first + DESCRIPTORS_MAX >= len(fds)
                socket.send_fds(self._control, [what if is_last else b"more"], chunk)
        except OSError:
            return False
        return True

    def _receive(self, patience_s: float | None) -> tuple[dict[str, str], list[int]]:
        """The template's next message; empty if it has died. An invalid message ends the template.

        A signal that raises ends the template: otherwise its pending answer would be taken for the next one.
        """
        import socket

        control = self._control
        assert control is not None
        deadline = None if patience_s is None else time.monotonic() + patience_s
        has_answered = False
        try:
            has_answered = self._wait_for(control, deadline)
            data, fds, _, _ = socket.recv_fds(control, MESSAGE_MAX_BYTES, _ANSWER_FDS) if has_answered else _NOTHING
        except OSError:
            data, fds = b"", []
        except BaseException:
            self.close()
            raise
        said = decode(data)
        if not said:
            if has_answered and not data:
                _wait_for_end(self._pid)  # the kernel closes its socket before it exits
            for fd in fds:
                os.close(fd)
            self.close()
            return {}, []
        return said, fds

    def _wait_for(self, control: socket.socket, deadline: float | None) -> bool:
        poll = select.poll()
        poll.register(control, select.POLLIN)
        with Uninterrupted(), SignalWakeUp() as signals:
            if signals.fd is not None:
                poll.register(signals.fd, select.POLLIN)
            while True:
                handlers.raise_pending(sections=1)
                wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                if any(fd == control.fileno() for fd, _ in poll.poll(poll_ms(wait_s))):
                    return True
                if wait_s == 0.0:  # looked at once more: this process may have been stopped until the deadline
                    return False
                signals.drain()

    def _give_up(self, reason: str) -> None:
        self._is_hopeless = True
        self.close()
        log.warning("no warm start: %s", reason)


@contextmanager
def _file_with(content: Any) -> Iterator[int]:
    """A memory file that holds `content`; yields its descriptor."""
    fd = os.memfd_create("holdfast-warm")
    try:
        with open(fd, "wb", closefd=False) as file:
            marshal.dump(content, file)
        yield fd
    finally:
        os.close(fd)


def _option_in(words: Sequence[str]) -> str:
    """An interpreter option that only a new interpreter can apply; "" if there is none."""
    left = [word for word in words if word != "-u"]
    return left[0] if left and left[0].startswith("-") and left[0] != "-m" else ""


def _has_ended(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return True


def _wait_for_end(pid: int) -> None:
    with suppress(AttributeError, OSError):
        fd = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(poll_ms(END_WAIT_S))
        finally:
            os.close(fd)


def _hooks_file() -> str:
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(here, "worker", "hooks.py")
