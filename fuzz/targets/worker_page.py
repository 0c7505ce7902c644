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
from holdfast.worker.shared_memory import (
    BEAT_NS,
    BEATS,
    LAYOUT,
    PAGE_BYTES,
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
        page = Page.find(path)
        is_page = len(data) >= PAGE_BYTES and int.from_bytes(data[:8], "little") == LAYOUT
        promise((page is not None) == is_page, "a page is taken for none, or the other way round")
        if page is None:
            return
        promise(page.numbers[VERSION] == LAYOUT, "the number of the layout is another one")
        promise(len(page.reason.encode("utf-8", "replace")) <= 3 * REASON_MAX_BYTES, "a reason is too long")
        _check_clock(page)
        page.request_stop("why \ud800" * 300, 7)
        again = Page.find(path)
        assert again is not None
        promise(again.numbers[STOP_NS] == 7, "a request to stop is not seen")
        promise(again.reason.startswith("why \\ud800why"), "the reason of a request to stop is another one")
        page.numbers.release()
        again.numbers.release()


def _check_clock(page: Page) -> None:
    reading = Reading(beats=page.numbers[BEATS], beat_at=page.numbers[BEAT_NS] / 1e9, step=page.numbers[STEP])
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
        page.request_stop("the others went on", 99)
        page.numbers.release()
        with open(path, "rb") as file:
            made = file.read()
    return [made, made[:100], bytes(PAGE_BYTES), b""]


TARGETS = (Target("worker-page", _run, _seeds, BYTES),)
