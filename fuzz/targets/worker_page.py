"""The page that a worker shares with its agent: any bytes in its file.

Promises: nothing is raised. A page that is too short, or of another layout, is none. The numbers are those of the file,
and the reason is bounded. What a hang is told with is one line. A request to stop is read as it was written.
"""

from __future__ import annotations

import os
import tempfile

from fuzz.oracles import check_line, promise
from fuzz.shapes import BYTES
from fuzz.target import Target
from holdfast.agent.progress import Reading, WorkerClock
from holdfast.agent.shared_memory import read_page, request_stop
from holdfast.worker.shared_memory import (
    BEAT_NS,
    BEATS,
    LAYOUT,
    NUMBER_BYTES,
    PAGE_BYTES,
    REASON_BYTES,
    REASON_MAX_BYTES,
    STEP,
    STOP_NS,
    VERSION,
    Page,
)

NOW = 5_000.0
WHY_MAX_CHARS = 200


def _run(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "page")
        with open(path, "wb") as file:
            file.write(data)
        numbers = read_page(path)
        is_page = len(data) >= NUMBER_BYTES * (REASON_BYTES + 1) and int.from_bytes(data[:8], "little") == LAYOUT
        promise((numbers is not None) == is_page, "a page is taken for none, or the other way round")
        if numbers is None:
            return
        promise(numbers[VERSION] == LAYOUT, "the number of the layout is another one")
        _check_clock(numbers)
        page = Page.make(path)
        promise(len(page.reason.encode("utf-8", "replace")) <= 3 * REASON_MAX_BYTES, "a reason is too long")
        promise(request_stop(path, "why \ud800" * 300, 7), "a request to stop is not written")
        promise(page.numbers[STOP_NS] == 7, "a request to stop is not seen")
        promise(page.reason.startswith("why \\ud800why"), "the reason of a request to stop is another one")
        page.numbers.release()


def _check_clock(numbers: memoryview) -> None:
    reading = Reading(beats=numbers[BEATS], beat_at=numbers[BEAT_NS] / 1e9, step=numbers[STEP])
    clock = WorkerClock(10.0, NOW)
    for now in (NOW + 2.5, NOW + 5.0, NOW + 100.0):
        clock.take_in(reading, now)
        promise(clock.next_look_at > now, "the agent looks without pause")
        stall_s = clock.stall_s(now)
        promise(0 <= stall_s <= now, "a stall is longer than time")
        check_line(clock.why(stall_s), "why a worker hangs", WHY_MAX_CHARS)


def _seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "page")
        page = Page.make(path)
        page.numbers[BEATS], page.numbers[STEP], page.numbers[BEAT_NS] = 3, 12, int(NOW * 1e9)
        request_stop(path, "the others went on", 99)
        page.numbers.release()
        with open(path, "rb") as file:
            made = file.read()
    return [made, made[:100], bytes(PAGE_BYTES), b""]


TARGETS = (Target("worker-page", _run, _seeds, BYTES),)
