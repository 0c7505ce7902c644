"""A job on the nodes of a network: its agents, and its workers, which a test hears and commands over one socket.

Nothing here has a thread: whoever waits takes in what has happened. Ends are taken in before beginnings, so a
worker that is seen to run beside another generation's did run beside it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time

import node_worker
from worker_lives import Life, is_world, problems

HOLDFAST = (sys.executable, "-m", "holdfast", "run")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")

DEADLINE_S = 90.0
"""How long anything may take that does happen."""

LOOK_AGAIN_S = 0.05
"""How often a file is looked at that an agent writes to."""

_STEERS_A_JOB = ("PET_", "TORCHELASTIC_", "HOLDFAST_", "TORCH_")


class Agent:
    """A launcher on a node."""

    def __init__(self, node, process, directory):
        self.node = node
        self.pid = process.pid
        self.returncode = None
        self._process = process
        self._directory = directory

    def kill(self, signum=signal.SIGKILL):
        self._process.send_signal(signum)

    def reap(self):
        self.returncode = self._process.wait()

    def stdout(self):
        return _read(os.path.join(self._directory, "stdout"))

    def stderr(self):
        return _read(os.path.join(self._directory, "stderr"))

    def __repr__(self):
        state = "runs" if self.returncode is None else f"ended with {self.returncode}"
        return f"agent of {self.node.hostname}, pid {self.pid}, {state}"


class Job:
    """Starts agents with common flags, and knows what became of their workers."""

    def __init__(self, network, directory, flags, *, launcher=HOLDFAST, environment=()):
        self.network = network
        self.agents = []
        self.lives = []
        self.flags = list(flags)
        self._directory = str(directory)
        self._launcher = launcher
        self._environment = _environment({"TMPDIR": self._directory, **dict(environment)})
        self._ears = {}
        self._selector = selectors.DefaultSelector()
        # Not in the test's directory, whose name may be longer than a socket's may be.
        self._place = tempfile.TemporaryDirectory(prefix="holdfast-job-")
        self._path = os.path.join(self._place.name, "workers")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self._path)
        self._listener.listen(1024)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    # Agents

    def start(self, *nodes, flags=(), words=(), environment=(), program=node_worker.__file__):
        """Start an agent on each of the nodes; `words` are for their workers."""
        return [self._start(node, flags, words, environment, program) for node in nodes]

    def _start(self, node, flags, words, environment, program):
        directory = os.path.join(self._directory, f"agent{len(self.agents) + 1}-{node.hostname}")
        os.mkdir(directory)
        worker = [program, self._path, node.hostname, *words]
        with (
            open(os.path.join(directory, "stdout"), "wb") as stdout,
            open(os.path.join(directory, "stderr"), "wb") as stderr,
        ):
            process = node.run(
                [*self._launcher, *self.flags, *flags, *worker],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=directory,
                env={**self._environment, **dict(environment)},
            )
        agent = Agent(node, process, directory)
        self.agents.append(agent)
        pidfd = os.pidfd_open(agent.pid)
        self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._reap(agent, pidfd))
        return agent

    def _reap(self, agent, pidfd):
        self._selector.unregister(pidfd)
        os.close(pidfd)
        agent.reap()

    def wait_for_words(self, agent, words, deadline_s=DEADLINE_S, or_until=lambda: False):
        """Until the agent has said this to people, or something else is so."""
        deadline = time.monotonic() + deadline_s
        while words not in agent.stderr() and not or_until():  # a file: nothing announces a line of it
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no sight of {words!r} within {deadline_s} s\n{self.describe()}")
            self._take_in(LOOK_AGAIN_S)

    def wait_until_empty(self, node, deadline_s=DEADLINE_S):
        """Until no process runs on the node: a keeper outlives a killed agent for a moment."""
        deadline = time.monotonic() + deadline_s
        while pids := node.pids():  # not our children: nothing announces their end
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{pids} still run on {node} after {deadline_s} s\n{self.describe()}")
            self._take_in(LOOK_AGAIN_S)

    def agent(self, node):
        """The node's latest."""
        return next(agent for agent in reversed(self.agents) if agent.node is node)

    def wait_for_exit(self, *agents, deadline_s=DEADLINE_S):
        """Their exit codes, when they all have one."""
        self.wait_until(
            lambda: all(agent.returncode is not None for agent in agents),
            f"the end of {', '.join(agent.node.hostname for agent in agents)}",
            deadline_s,
        )
        return [agent.returncode for agent in agents]

    # Workers

    def alive(self, *nodes):
        """The workers that run; on these nodes only, if any are given."""
        names = {node.hostname for node in nodes or self.network.nodes}
        return [life for life in self.lives if not life.has_ended and life.node in names]

    def worker(self, node, local_rank):
        """The one that runs there."""
        (life,) = (life for life in self.alive(node) if life.local_rank == local_rank)
        return life

    def wait_for_world(self, size, *, after=(), deadline_s=DEADLINE_S):
        """The workers by rank, once every rank of a world of `size` runs, and nobody else and none of `after` does."""

        def is_there():
            alive = self.alive()
            return is_world(alive, size) and not any(life in after for life in alive)

        self.wait_until(is_there, f"a world of {size}", deadline_s)
        return sorted(self.alive(), key=lambda life: life.rank)

    def wait_for_end(self, lives, deadline_s=DEADLINE_S):
        self.wait_until(lambda: all(life.has_ended for life in lives), f"the end of {lives}", deadline_s)

    def tell(self, lives, command):
        """Give workers a command; see node_worker. Those that have just ended do not hear it."""
        connections = {ear.life: connection for connection, ear in self._ears.items()}
        for life in lives:
            if life in connections:
                connections[life].sendall(command.encode() + b"\n")

    def tell_all(self, command):
        self.tell(self.alive(), command)

    def check(self):
        """Fail if ever two generations ran at once, or one was not of one mind."""
        found = problems(self.lives)
        assert not found, "\n".join([*found, self.describe()])

    # Events

    def wait_until(self, condition, what, deadline_s=DEADLINE_S):
        """Take in what happens until `condition()` holds."""
        deadline = time.monotonic() + deadline_s
        self._take_in(0)
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no sight of {what} within {deadline_s} s\n{self.describe()}")
            self._take_in(left)

    def stays(self, condition, seconds):
        """Whether `condition()` holds all the time: for what nobody can announce."""
        deadline = time.monotonic() + seconds
        while condition() and (left := deadline - time.monotonic()) > 0:
            self._take_in(left)
        return condition()

    def _take_in(self, timeout_s):
        """Wait for something, then take in all there is: ends at once, beginnings at last."""
        begun = []
        ready = self._selector.select(timeout_s)
        while ready:
            for key, _ in ready:
                begun += key.data() or ()
            ready = self._selector.select(0)
        for ear, said in begun:
            ear.life = life = Life(said)
            life.has_ended = ear.is_over
            if not ear.is_over:
                life.seen_with = {other for other in self.alive() if other.generation != life.generation}
            for more in ear.early:
                life.add(more)
            self.lives.append(life)

    def _accept(self):
        connection, _ = self._listener.accept()
        self._ears[connection] = ear = _Ear()
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(connection, ear))

    def _hear(self, connection, ear):
        try:
            data = connection.recv(1 << 16)
        except ConnectionResetError:
            data = b""  # it ended with a command of ours unread
        if not data:
            ear.end()
            self._selector.unregister(connection)
            del self._ears[connection]
            connection.close()
        return ear.hear(data)

    # The end

    def describe(self):
        """All that is known, for whoever reads why a test failed."""
        lines = [f"{agent}\n{_indented(agent.stderr()[-3000:])}" for agent in self.agents]
        return "\n".join(["workers:", *map(repr, self.lives), "agents:", *lines])

    def close(self):
        """Let go of the sockets; a worker that still runs ends by that. Agents end with their network."""
        for key in list((self._selector.get_map() or {}).values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            else:
                key.fileobj.close()
        self._selector.close()
        self._place.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Ear:
    """One worker's connection."""

    def __init__(self):
        self.life = None
        self.is_over = False
        self.early = []
        self._data = b""
        self._has_begun = False

    def hear(self, data):
        """Take in what was said; returns the beginning of a life, if it is among it."""
        *lines, self._data = (self._data + data).split(b"\n")
        begun = []
        for said in map(json.loads, lines):
            if not self._has_begun:
                self._has_begun = True
                begun.append((self, said))
            elif self.life is None:
                self.early.append(said)
            else:
                self.life.add(said)
        return begun

    def end(self):
        self.is_over = True
        if self.life is not None:
            self.life.has_ended = True


def succeed(job, agents):
    """Let the workers end well, and so the job, on all these nodes."""
    job.tell_all("exit 0")
    assert job.wait_for_exit(*agents) == [0] * len(agents), job.describe()
    assert not job.alive()
    job.check()


def restart_counts(world):
    return {life.restart_count for life in world}


def _environment(added):
    """This process's, without what would steer a job."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_STEERS_A_JOB)}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **added}


def _read(path):
    with open(path, errors="replace") as file:
        return file.read()


def _indented(text):
    return "\n".join(f"    {line}" for line in text.splitlines())
