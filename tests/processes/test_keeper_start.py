"""How a keeper starts: what it imports, and what it is told."""

from __future__ import annotations

import marshal
import subprocess
import sys
import threading

import pytest

from holdfast.processes.keeper_start import _wants_fresh, plain
from holdfast.processes.launch import Launch, PickledCall
from holdfast.processes.spawned import boot


def test_a_fresh_keeper_imports_nothing_of_the_agents():
    code = boot("from holdfast.processes.keeper_start import main; print(*sorted(set(sys.modules) - set(bare)))")
    command = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    ours = {name.removeprefix("holdfast.") for name in ran.stdout.split() if name.startswith("holdfast.")}
    assert ours == {
        "_lazy",
        "descriptors",
        "procfs",
        "signals",
        "waiting",
        "processes",
        "processes.children",
        "processes.console",
        "processes.console_relay",
        "processes.progress_bars",
        "processes.exiting",
        "processes.fence",
        "processes.keeper",
        "processes.keeper_reports",
        "processes.keeper_start",
        "processes.keeper_states",
        "processes.launch",
        "processes.prctl",
        "processes.signal_setup",
        "worker",
        "worker.injection",
    }
    others = {name for name in ran.stdout.split() if not name.startswith("holdfast")}
    assert not others & {"threading", "typing", "re", "subprocess", "ctypes", "collections.abc"}


def test_a_launch_survives_the_way_to_a_fresh_keeper():
    command = Launch(3, ("program", "--option"), {"NAME": "value"}, "out", "err", (7,))
    assert marshal.loads(marshal.dumps(plain(command))) == (
        *(3, ["program", "--option"], {"NAME": "value"}, "out", "err"),
        (7,),
    )
    function = Launch(0, PickledCall(5, 6, is_fresh=True), {})
    assert marshal.loads(marshal.dumps(plain(function)))[1] == (5, 6, True)
    with pytest.raises(AssertionError):
        plain(Launch(0, lambda: 0, {}))


def test_a_process_with_threads_is_not_copied_unless_its_function_must_be():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert _wants_fresh([Launch(0, ["true"], {})])
        assert not _wants_fresh([Launch(0, lambda: 0, {})])
    finally:
        done.set()
        thread.join()
    assert _wants_fresh([Launch(0, PickledCall(5, 6), {})])
