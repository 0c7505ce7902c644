"""Signals as exceptions: while a set of processes runs, a stop signal raises `SignalException` in the main thread.

The previous handlers are restored when the last set closes. Only the main thread of a process may install handlers. In
other threads, nothing here has an effect, and the owner of the main thread handles signals.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from contextlib import suppress

from holdfast.processes.standard_streams import open_missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Iterable
    from types import FrameType
    from typing import Any, NoReturn, Self

SIGNALS_VARIABLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"
DEFAULT_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"

AGAIN_S = 0.005
"""How long after a signal that arrived during an import it is sent again."""

DEFERRED_MAX_S = 5.0
"""How long a signal waits for the end of a `Deferred` section. A scheduler may allow 30 s until it sends SIGKILL."""

TERMINAL_SIGNALS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
"""The signals that a terminal sends. nohup ignores SIGHUP for its job, and a shell without job control ignores SIGINT
and SIGQUIT for its background jobs, so that the terminal does not end them. A handler would undo that."""


class SignalException(Exception):  # noqa: N818 - the name is part of the public API
    """A signal asked this process to stop; `sigval` says which."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg, sigval)
        self.sigval = sigval

    def __str__(self) -> str:
        return str(self.args[0])


class KeyboardSignalException(SignalException, KeyboardInterrupt):
    """SIGINT asked this process to stop: to a notebook, and to programs that expect it, also a KeyboardInterrupt."""


def signals_to_handle(text: str | None = None) -> list[signal.Signals]:
    """The signals named in `text`, or else in the environment."""
    text = os.environ.get(SIGNALS_VARIABLE, DEFAULT_SIGNALS) if text is None else text
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in signal.Signals.__members__]
    uncatchable = [name for name in names if name in ("SIGKILL", "SIGSTOP")]
    if unknown or uncatchable:
        from holdfast.errors import InputError

        wrong = f"unknown signal {unknown[0]!r}" if unknown else f"{uncatchable[0]!r} cannot be caught"
        meant = f"SIG{unknown[0].upper().removeprefix('SIG')}" if unknown else ""
        advice = f"write names separated by commas, such as {DEFAULT_SIGNALS}"
        if meant in signal.Signals.__members__:
            advice = f"did you mean {meant}?"
        raise InputError(f"{SIGNALS_VARIABLE}={text!r}: {wrong}; {advice}")
    return [signal.Signals[name] for name in names]


class _Handlers:
    """The handlers of this process: one set of handlers for all its sets of workers."""

    def __init__(self) -> None:
        self.users = 0
        self.main_thread: int | None = None
        self.previous: dict[int, Any] = {}
        self.critical_sections = 0
        self.pending: list[int] = []
        self.deferral: LockType | None = None
        self.deferred: int | None = None
        self.wakeup: tuple[int, int] | None = None

    def install(self, wanted: Iterable[signal.Signals] | None = None) -> None:
        """Count one more user. The first one installs the handlers, of the `wanted` signals or of the environment's.

        A signal that arrives meanwhile is kept for the end of the next critical section. A terminal signal that is
        ignored stays ignored, here and in the workers.
        """
        if self.users > 0 and self.main_thread is not None:
            self.users += 1
            return
        wanted = signals_to_handle() if wanted is None else wanted
        self.users += 1
        if not _is_main_thread():
            return
        self.critical_sections += 1
        try:
            self.main_thread = _thread.get_ident()
            if self.wakeup is None:
                open_missing()
                self.wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            for signum in wanted:
                before = signal.getsignal(signum)
                is_left_ignored = before is signal.SIG_IGN and signum in TERMINAL_SIGNALS
                if before != self._handle and not is_left_ignored:
                    self.previous[signum] = signal.signal(signum, self._handle)
        finally:
            self.critical_sections -= 1

    def uninstall(self) -> None:
        self.users -= 1
        if self.users == 0:
            self._put_back()
            # A section failed, and nobody has raised its signal. So it is for the program.
            while self.pending and not self.critical_sections and _is_main_thread():
                os.kill(os.getpid(), self.pending.pop(0))

    def tidy(self) -> None:
        """Restore the handlers, if the last set was closed by a thread that could not."""
        if self.users == 0 and self.main_thread == _thread.get_ident():
            self._put_back()

    def forget(self) -> None:
        """In a forked process, which owns none of the sets."""
        self.users = self.critical_sections = 0
        self.pending.clear()
        self.deferral = self.deferred = None
        if self.wakeup is not None:
            with suppress(ValueError):  # another interpreter's thread forked
                listener = signal.set_wakeup_fd(-1)
                if listener not in (-1, self.wakeup[1]):
                    signal.set_wakeup_fd(listener)
        self._close_wakeup()

    def raise_pending(self, sections: int = 0) -> None:
        """Raise for a signal that arrived in a critical section, at a point where nothing is half done.

        `sections` is the number of surrounding critical sections that allow it; inside more, the signal stays pending.
        """
        while self.pending and self.critical_sections <= sections:
            self._deliver(self.pending.pop(0))  # a second one may mean more than the first

    def begin_deferral(self) -> None:
        self.deferral = _thread.allocate_lock()
        self.deferral.acquire()

    def end_deferral(self) -> int | None:
        """The signal that was deferred; from now on it is the caller's."""
        section, self.deferral = self.deferral, None
        signum, self.deferred = self.deferred, None
        if section is not None:
            section.release()
        return signum

    def _put_back(self) -> None:
        """Restore the previous handlers, except those that were replaced since."""
        if not _is_main_thread():
            return  # `_handle` does it at the next signal, and `install` copes
        while self.previous:
            signum, handler = self.previous.popitem()
            if signal.getsignal(signum) == self._handle:
                # None: it was not installed from Python, and cannot be restored.
                signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        self.main_thread = None
        self._close_wakeup()

    def _close_wakeup(self) -> None:
        if self.wakeup is not None:
            for fd in self.wakeup:
                os.close(fd)
            self.wakeup = None

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.users == 0:
            self._put_back()
            if signal.getsignal(signum) == self._handle:
                signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        elif self.critical_sections:
            self.pending.append(signum)
        elif _is_importing(frame):
            try:
                _thread.start_new_thread(self._send_again, (signum,))
            except RuntimeError:  # no thread is left
                self.pending.append(signum)
        else:
            self._deliver(signum)

    def _deliver(self, signum: int) -> None:
        """Raise the exception, or defer it."""
        if self.deferral is None or self.deferred is not None:
            _interrupt(signum)
        self.deferred = signum
        with suppress(RuntimeError):  # no thread is left: it waits for the end of the section
            _thread.start_new_thread(self._end_deferral, (signum, self.deferral))

    def _end_deferral(self, signum: int, section: LockType) -> None:
        main_thread = self.main_thread
        if not section.acquire(timeout=DEFERRED_MAX_S) and main_thread is not None:
            signal.pthread_kill(main_thread, signum)

    def _send_again(self, signum: int) -> None:
        time.sleep(AGAIN_S)
        main_thread = self.main_thread
        if main_thread is None:  # the last set is closed: the signal is for the program
            os.kill(os.getpid(), signum)
        else:
            signal.pthread_kill(main_thread, signum)


def _is_main_thread() -> bool:
    threading = sys.modules.get("threading")  # if it was never imported, there is only one thread
    return threading is None or threading.current_thread() is threading.main_thread()


def _is_importing(frame: FrameType | None) -> bool:
    """Whether our own code imports a module there: half an extension module can crash the interpreter later."""
    is_import = False
    while frame is not None:
        code = frame.f_code
        is_import = is_import or code.co_filename.startswith("<frozen importlib._bootstrap")
        if code.co_name != "<module>" and str(frame.f_globals.get("__name__")).startswith("holdfast."):
            return is_import  # a program may run all of this while it is imported itself
        frame = frame.f_back
    return False  # the user's own import


def _interrupt(signum: int) -> NoReturn:
    raise _exception(signum)


def _exception(signum: int) -> SignalException:
    received = signal.Signals(signum)
    kind = KeyboardSignalException if received is signal.SIGINT else SignalException
    return kind(f"process {os.getpid()} got the signal {received.name}", sigval=received)


handlers = _Handlers()
os.register_at_fork(after_in_child=handlers.forget)


class Uninterrupted:
    """A section that a signal must not leave half done; the exception is raised at its end."""

    def __enter__(self) -> None:
        self._counts = handlers.main_thread == _thread.get_ident()
        if self._counts:
            handlers.critical_sections += 1

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if self._counts:
            handlers.critical_sections -= 1
            if error_type is None:
                handlers.raise_pending()


class Held(Uninterrupted):
    """A section that a signal must not leave half done; the next wait raises the exception, or the next section."""

    def __exit__(self, *_: object) -> None:
        if self._counts:
            handlers.critical_sections -= 1


class Deferred:
    """A section at whose end a signal is raised, or after `DEFERRED_MAX_S`. A second signal is raised at once."""

    def __enter__(self) -> None:
        self._counts = handlers.main_thread == _thread.get_ident() and handlers.deferral is None
        if self._counts:
            handlers.begin_deferral()

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._counts:
            signum = handlers.end_deferral()
            if signum is not None and not isinstance(error, SignalException):
                raise _exception(signum) from error


class SignalWakeUp:
    """A descriptor that is readable when a signal arrived, for waits in the main thread. Use it in a critical section.

    Without it, a signal that arrives between Python's last instruction and the system call would be handled only after
    the wait. Other listeners for signals in this process are notified as well.
    """

    def __enter__(self) -> Self:
        self.fd: int | None = None
        if handlers.wakeup is not None and handlers.main_thread == _thread.get_ident():
            self.fd, write_end = handlers.wakeup
            self._others = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd is not None:
            signal.set_wakeup_fd(self._others, warn_on_full_buffer=False)
            self.drain()

    def drain(self) -> None:
        """Consume the notifications; the signal handlers run by themselves."""
        if self.fd is not None:
            with suppress(BlockingIOError):
                signals = os.read(self.fd, 4096)
                if self._others >= 0:
                    os.write(self._others, signals)
