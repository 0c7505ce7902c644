"""Sees workers begin and end, agents end, and the training's history grow, in a thread of its own that never waits for
anything else.

Ends are taken in before beginnings: a worker that is recorded to begin while another one runs did run beside it. A
worker's connection is closed by the kernel when it dies, before its keeper can know of its end. This thread may be late
on a busy machine, and take in an end and a beginning at once that happened in the other order. So every end has the
last time that the worker wrote itself, of the clock that all of them share.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from holdfast.processes.file_changes import Inotify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import Popen

    from chaos.record import Record

IN_MODIFY = 0x2
WORLD = ("HOLDFAST_GENERATION", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
"""What all workers of a generation agree on, and no other's do."""

JOIN_MAX_S = 10.0


class Worker:
    """A worker that was seen to begin."""

    def __init__(self, number: int, said: dict[str, Any]) -> None:
        self.number = number
        self.node: str = said["node"]
        self.pid: int = said["pid"]
        self.steps: int = said["steps"]
        environment = said["environment"]
        self.rank = int(environment["RANK"])
        self.local_rank = int(environment["LOCAL_RANK"])
        self.world_size = int(environment["WORLD_SIZE"])
        self.generation = int(environment["HOLDFAST_GENERATION"])
        self.world = (said["job"], *(environment[name] for name in WORLD))
        self._pidfd = -1
        with contextlib.suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(self.pid)

    def send(self, signum: signal.Signals) -> bool:
        """Send it a signal. False if it has ended already."""
        try:
            signal.pidfd_send_signal(self._pidfd, signum)
        except (ProcessLookupError, OSError):
            return False
        return True

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def last_beat_ns(pulse: str) -> int:
    """The last time that a worker wrote into its pulse. Nothing needs the file any more."""
    try:
        with open(pulse, "rb") as file:
            (last_ns,) = struct.unpack("q", file.read(8))
        os.unlink(pulse)
    except (OSError, struct.error):  # it was killed before it could write anything
        return 0
    return int(last_ns)


class Observer:
    """Writes to a record what it sees. `changed` is notified of everything; whoever waits holds it."""

    def __init__(self, record: Record, socket_path: Path, history: Path) -> None:
        self.changed = threading.Condition()
        self.alive: dict[int, Worker] = {}
        self.newest: Worker | None = None
        self.facts: list[dict[str, Any]] = []
        self._record = record
        self._selector = selectors.DefaultSelector()
        self._count = 0
        self._history = history.open()
        self._half_line = ""
        self._inotify = Inotify()
        self._path = str(history)
        self._inotify.watch_once(self._path, IN_MODIFY)
        self._selector.register(self._inotify.fd, selectors.EVENT_READ, self._read_history)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(socket_path))
        self._listener.listen(64)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._awake, self._wake = os.pipe()
        self._selector.register(self._awake, selectors.EVENT_READ, self._take_in_agents)
        self._new_agents: list[tuple[int, Popen[bytes], Callable[[int], None]]] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="observer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        os.write(self._wake, b"\n")
        self._thread.join(JOIN_MAX_S)
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, int) and key.fileobj not in (self._inotify.fd, self._awake):
                os.close(key.fileobj)
            elif isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._inotify.close()
        self._selector.close()
        self._history.close()
        for worker in self.alive.values():
            worker.close()
        os.close(self._awake)
        os.close(self._wake)

    def watch_agent(self, process: Popen[bytes], tell: Callable[[int], None]) -> None:
        """`tell` is called with the exit code, in the observer's thread."""
        self._new_agents.append((os.pidfd_open(process.pid), process, tell))
        os.write(self._wake, b"\n")

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Until `condition()` holds, looked at whenever something was seen; False if it did not in that time."""
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def worker(self, node: str, local_rank: int) -> Worker | None:
        with self.changed:
            found = [each for each in self.alive.values() if (each.node, each.local_rank) == (node, local_rank)]
        return found[-1] if found else None

    # In the observer's thread

    def _run(self) -> None:
        while not self._is_over:
            begun: list[tuple[socket.socket, dict[str, Any]]] = []
            ready = self._selector.select()
            with self.changed:
                while ready:
                    for key, _ in ready:
                        begun += key.data() or ()
                    ready = [] if self._is_over else self._selector.select(0)
                for connection, said in begun:
                    self._begin(connection, said)
                self.changed.notify_all()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        said = bytearray()

        def hear() -> list[tuple[socket.socket, dict[str, Any]]]:
            data = connection.recv(1 << 16)
            said.extend(data)
            if data and not said.endswith(b"\n"):
                return []
            self._selector.unregister(connection)
            if not data:  # it was killed while it spoke
                connection.close()
                return []
            return [(connection, json.loads(said))]

        self._selector.register(connection, selectors.EVENT_READ, hear)

    def _begin(self, connection: socket.socket, said: dict[str, Any]) -> None:
        self._count += 1
        number = self._count
        self._record.add("begin", life=number, **said)
        self.newest = self.alive[number] = Worker(number, said)

        def end() -> None:
            self._selector.unregister(connection)
            connection.close()
            self.alive.pop(number).close()
            self._record.add("end", life=number, seen_ns=time.monotonic_ns(), last_ns=last_beat_ns(said["pulse"]))

        self._selector.register(connection, selectors.EVENT_READ, end)

    def _read_history(self) -> None:
        self._inotify.read()
        self._inotify.watch_once(self._path, IN_MODIFY)
        *lines, self._half_line = (self._half_line + self._history.read()).split("\n")
        for line in lines:
            fact = json.loads(line)
            self.facts.append(fact)
            self._record.add("fact", **fact)

    def _take_in_agents(self) -> None:
        os.read(self._awake, 4096)
        new, self._new_agents = self._new_agents, []
        for pidfd, process, tell in new:
            self._selector.register(pidfd, selectors.EVENT_READ, self._agent_end(pidfd, process, tell))

    def _agent_end(self, pidfd: int, process: Popen[bytes], tell: Callable[[int], None]) -> Callable[[], None]:
        def end() -> None:
            self._selector.unregister(pidfd)
            os.close(pidfd)
            tell(process.wait())

        return end
