"""The limits that scenarios stand beside: what the machine takes for the least that could do the work.

As a scenario of its own, the four that all others are made of: the start of an interpreter, a fork, the wake-up of a
process whose child has ended, and a round trip over loopback.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from benchmarks.measuring import Measurement, in_turns
from benchmarks.topics import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workplace import Workplace

INTERPRETERS = "interpreters"
PIDFD = "pidfd wake-up"
ECHO = "loopback echo"
CONNECTIONS = "bare connections"
NOTICE = "pidfd + round trip"

ECHO_BYTES = 64
ROUND_TRIPS = 200
"""How many are one sample."""

CHILD_MAX_S = 60
"""A child that takes longer hangs, and its alarm ends it."""

BETWEEN_LOOKS = 100
"""How many echoes a client makes between two looks at the clock."""

WHAT = {
    "bare interpreter": "an interpreter that imports nothing: start → end",
    "fork": "fork → a line of Python runs in the child",
    PIDFD: "a child ends → its parent's poll returns",
    "round trip": "64 bytes to another process and back, TCP",
}

_BARE = ("-I", "-S", "-c")


def measure(workplace: Workplace) -> list[Measurement]:
    rounds = 5 if workplace.quick else 15
    each: dict[str, Callable[[int], list[float]]] = {
        "bare interpreter": lambda _: [bare_interpreter_ms()],
        "fork": lambda _: [fork_ms()],
        PIDFD: lambda _: [pidfd_wake_up_ms()],
        "round trip": lambda _: [round_trip_ms()],
    }
    return [
        Measurement(WHAT[name], "ms", {name: samples}, topic=MACHINE)
        for name, samples in in_turns(rounds, each).items()
    ]


def bare_interpreter_ms() -> float:
    """An interpreter that imports nothing, from its start to its end."""
    began = time.monotonic_ns()
    subprocess.run([sys.executable, *_BARE, "pass"], check=True)
    return (time.monotonic_ns() - began) / 1e6


def interpreters_s(count: int, preamble: str = "pass") -> float:
    """As many interpreters as workers have, started at once: until the last has run the preamble."""
    program = f"import time\n{preamble}\nprint(time.monotonic_ns())"
    began = time.monotonic_ns()
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    said = [process.communicate()[0] for process in started]
    return (max(map(int, said)) - began) / 1e9


def fork_ms() -> float:
    """Until a line of Python runs in the child."""
    began = time.monotonic_ns()
    return (_child_ended()[0] - began) / 1e6


def pidfd_wake_up_ms() -> float:
    """From a child's last line to the parent's wake-up."""
    said, woken = _child_ended()
    return (woken - said) / 1e6


def notice_s() -> float:
    """The least until another node knows that a process has ended."""
    return (pidfd_wake_up_ms() + round_trip_ms()) / 1000


def _child_ended() -> tuple[int, int]:
    """When a child ran, in its only line, and when the parent was told of its end."""
    clock, childs_clock = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(childs_clock, b"%d" % time.monotonic_ns())
        os._exit(0)
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll()
        woken = time.monotonic_ns()
        os.waitpid(pid, 0)
        return int(os.read(clock, 64)), woken
    finally:
        for fd in (pidfd, clock, childs_clock):
            os.close(fd)


def round_trip_ms() -> float:
    """Of a few bytes to another process and back, over TCP; the mean of many."""
    with _Echo() as echo, echo.connection() as connection:
        _echo(connection)
        began = time.monotonic_ns()
        for _ in range(ROUND_TRIPS):
            _echo(connection)
        return (time.monotonic_ns() - began) / 1e6 / ROUND_TRIPS


def echo_rate(clients: int, for_s: float) -> float:
    """Echoes a second of so many clients together, each a process with an echo of its own."""
    rates, say = os.pipe()
    pids = []
    with ExitStack() as stack:
        echoes = [stack.enter_context(_Echo()) for _ in range(clients)]
        for echo in echoes:
            pid = os.fork()
            if pid == 0:
                try:
                    signal.alarm(CHILD_MAX_S)
                    with echo.connection() as connection:
                        os.write(say, b"%f\n" % _rate(connection, for_s))
                finally:
                    os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
    os.close(say)
    with os.fdopen(rates) as lines:
        return sum(map(float, lines))


def _rate(connection: socket.socket, for_s: float) -> float:
    done, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < for_s:
        for _ in range(BETWEEN_LOOKS):
            _echo(connection)
        done += BETWEEN_LOOKS
    return done / took


def _echo(connection: socket.socket) -> None:
    connection.send(bytes(ECHO_BYTES))
    connection.recv(ECHO_BYTES)


class _Echo:
    """A process that sends back what one connection says, and ends with it."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self._address = listener.getsockname()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                signal.alarm(CHILD_MAX_S)
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while said := connection.recv(ECHO_BYTES):
                    connection.send(said)
            finally:
                os._exit(0)
        listener.close()

    def connection(self) -> socket.socket:
        connection = socket.create_connection(self._address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def connections_meet_s(count: int) -> float:
    """As many connections over loopback: each says a word, and all are answered when all have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4 * count + 1024), most))
    listener = socket.create_server(("127.0.0.1", 0), backlog=count)
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(CHILD_MAX_S)
            connections = [listener.accept()[0] for _ in range(count)]
            for connection in connections:
                connection.recv(ECHO_BYTES)
            for connection in connections:
                connection.send(b"all are here")
        finally:
            os._exit(0)
    began = time.monotonic_ns()
    connections = []
    for _ in range(count):
        connections.append(socket.create_connection(listener.getsockname()))
        connections[-1].send(bytes(ECHO_BYTES))
    for connection in connections:
        assert connection.recv(ECHO_BYTES), "the meeting broke"
    took_s = (time.monotonic_ns() - began) / 1e9
    for each in (listener, *connections):
        each.close()
    os.waitpid(pid, 0)
    return took_s
