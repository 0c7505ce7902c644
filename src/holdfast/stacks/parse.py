"""Parses the text of stacks into threads and frames: the output of faulthandler and py-spy, and our own remarks.

A remark is a line before the stacks, such as ``# state: stopped by a signal``: a fact found from outside the process.
"""

from __future__ import annotations

import re

from msgspec import Struct

from holdfast.stacks.asking import STATE

SOURCE = "# source: "
"""The remark on the source of the stacks, if the process did not write them itself."""

STEP = "# step: "
"""The remark with the step of the process's last heartbeat."""

LINE = "# line: "
"""The remark with the source line of the main thread's innermost frame."""

LINE_MAX_CHARS = 4_096
"""A longer line is not a frame."""

STEP_MAX_DIGITS = 18
"""A longer number is not a step: steps have 64 bits."""

REMARKS_MAX_CHARS = 1_024
"""How much of the beginning is searched for remarks."""

_FAULTHANDLER_THREAD = re.compile(
    r"(?:(?P<current>Current thread|Thread) (?P<ident>0x[0-9a-fA-F]+)(?: \[(?P<name>.*)\])?|Stack)"
    r" \(most recent call first\):$"
)
_FAULTHANDLER_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?)(?: in (?P<function>.*))?$')
_PY_SPY_PROCESS = re.compile(r"Process (?P<pid>\d+)")
_PY_SPY_THREAD = re.compile(r'Thread (?P<ident>\w+) \((?P<status>[^)]*)\)(?:: "(?P<name>.*)")?$')
_PY_SPY_FRAME = re.compile(r"    (?P<function>\S.*?) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")
_NATIVE = "Current thread's C stack trace"
_MORE_THREADS = "..."
_CUT = re.compile(r"\.\.\. \d+ characters left out \.\.\.$")


class Frame(Struct, frozen=True):
    """A call that has not returned. `line` is 0 if unknown."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Thread(Struct, frozen=True):
    """A thread and its frames, the innermost first."""

    name: str
    is_main: bool
    frames: tuple[Frame, ...]


class Stacks(Struct, frozen=True):
    """The stacks and remarks of one process. `step` is -1 and `line` is "" if unknown."""

    threads: tuple[Thread, ...] = ()
    state: str = ""
    source: str = ""
    step: int = -1
    line: str = ""

    @property
    def main(self) -> Thread | None:
        return next((thread for thread in self.threads if thread.is_main), None)


class _Section:
    """A thread while it is parsed."""

    __slots__ = ("frames", "ident", "is_current", "name")

    def __init__(self, ident: str = "", name: str = "", *, is_current: bool = False) -> None:
        self.ident = ident
        self.name = name
        self.is_current = is_current
        self.frames: list[Frame] = []


class _Reading:
    """A text while it is parsed, line by line."""

    __slots__ = ("_pid", "_sections", "_was_cut")

    def __init__(self) -> None:
        self._pid = ""
        self._sections: list[_Section] = []
        self._was_cut = False  # faulthandler omitted further threads

    def take_in(self, line: str) -> None:
        if section := _section(line):
            if section.ident and any(section.ident == other.ident for other in self._sections):
                self._sections = []  # the same thread again: a second dump begins
            self._sections.append(section)
            self._was_cut = False
        elif frame := _frame(line):
            if not self._sections:
                self._sections.append(_Section())  # its beginning was cut off
            self._sections[-1].frames.append(frame)
        elif process := _PY_SPY_PROCESS.match(line):
            self._pid = process["pid"]
        elif _CUT.match(line):
            self._sections.append(_Section())  # the frames that follow belong to an unknown thread
        elif line == _MORE_THREADS:
            self._was_cut = True

    def threads(self) -> tuple[Thread, ...]:
        known = [section for section in self._sections if section.ident or section.frames]
        main = self._main(known)
        return tuple(Thread(section.name or section.ident, section is main, tuple(section.frames)) for section in known)

    def _main(self, sections: list[_Section]) -> _Section | None:
        """The main thread. In py-spy's output it has the name MainThread, or its id is the process id.

        faulthandler gives no names. It writes the oldest thread last, which is the main thread. If it omitted threads,
        the main thread is the one that handled the signal, since the kernel prefers it for that.
        """
        if not sections:
            return None
        if self._pid:
            named = (section for section in sections if section.name == "MainThread" or section.ident == self._pid)
            return next(named, sections[0])
        if not self._was_cut:
            return sections[-1]
        return next((section for section in sections if section.is_current), None)


def parse(text: str) -> Stacks:
    """The stacks in `text`. Lines that are not understood are skipped; the last of several dumps counts."""
    reading = _Reading()
    for line in text.splitlines():
        if line.startswith(_NATIVE):
            break
        if len(line) <= LINE_MAX_CHARS:
            reading.take_in(line)
    step = _remark(text, STEP)
    return Stacks(
        reading.threads(),
        _remark(text, STATE),
        _remark(text, SOURCE),
        int(step) if step.isdecimal() and len(step) <= STEP_MAX_DIGITS else -1,
        _remark(text, LINE),
    )


def _remark(text: str, name: str) -> str:
    """The value of a remark; "" if there is none."""
    head = text[:REMARKS_MAX_CHARS].splitlines()
    return next((line.removeprefix(name).strip() for line in head if line.startswith(name)), "")


def _section(line: str) -> _Section | None:
    if found := _FAULTHANDLER_THREAD.match(line):
        is_current = found["current"] != "Thread"
        return _Section(found["ident"] or "", found["name"] or "", is_current=is_current)
    if found := _PY_SPY_THREAD.match(line):
        return _Section(found["ident"], found["name"] or "")
    return None


def _frame(line: str) -> Frame | None:
    found = _FAULTHANDLER_FRAME.match(line)
    if found is None and line.endswith(")"):  # without it, the expression would try every parenthesis of the line
        found = _PY_SPY_FRAME.match(line)
    if found is None:
        return None
    number = found["line"]
    return Frame(found["file"], int(number) if number and number.isdecimal() else 0, found["function"] or "???")
