"""A worker that needs all others: it has a connection to each of them, and takes every step together with them.

`python mesh_worker.py IGNORED SOCKET NODE`: like `node_worker`, it takes commands from the test at the socket. When a
peer is gone it raises at once, as a collective does.

Commands:
    finish        end well, at the step that all have been told before
    compute TEXT  raise a ValueError
    stall         stand still, in a function of its own
    betray RANKS  part from the peers, and raise only when those of these ranks have; see `Order`
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import sys
import time

from node_worker import LIFE_MAX_S, Worker

MEET_PORT = 32000
"""Plus the generation: rank 0 tells the others there where all of them are."""

STEP_S = 0.05
"""How long a step takes at least."""

RETRY_S = 0.02
WAITS, WANTS_END = b"\0", b"\1"


class Mesh:
    """The connections to all peers, by rank."""

    def __init__(self):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._listener = socket.create_server(("", 0))
        table = self._lead() if self.rank == 0 else self._follow()
        self.peers = {}
        for rank in range(self.rank):
            self.peers[rank] = peer = socket.create_connection(table[rank])
            peer.sendall(bytes([self.rank]))
        while len(self.peers) < self.size - 1:
            peer, _ = self._listener.accept()
            self.peers[peer.recv(1)[0]] = peer

    def _lead(self):
        port = self._listener.getsockname()[1]
        where = {0: (os.environ["MASTER_ADDR"], port)}
        others = []
        with socket.create_server(("", _meet_port())) as meeting:
            while len(where) < self.size:
                other, (address, _) = meeting.accept()
                others.append(other)
                rank, port = json.loads(other.makefile().readline())
                where[rank] = (address, port)
        for other in others:
            other.sendall(json.dumps(sorted(where.items())).encode() + b"\n")
            other.close()
        return where

    def _follow(self):
        while True:
            try:
                meeting = socket.create_connection((os.environ["MASTER_ADDR"], _meet_port()))
                break
            except ConnectionRefusedError:
                time.sleep(RETRY_S)  # rank 0 has only begun; it is somebody else's to say if it never comes
        with meeting, meeting.makefile() as lines:
            meeting.sendall(json.dumps([self.rank, self._listener.getsockname()[1]]).encode() + b"\n")
            return {rank: tuple(address) for rank, address in json.loads(lines.readline())}

    def take_step(self, word):
        """Tell all peers a byte; returns whether everybody said the same as we."""
        for rank in sorted(self.peers):
            self.peers[rank].sendall(word)
        return {self.wait_for_peer(rank) for rank in sorted(self.peers)} <= {word}

    def wait_for_peer(self, rank):
        heard = self.peers[rank].recv(1)
        if not heard:
            raise ConnectionError(f"connection closed by peer {rank}")
        return heard

    def part(self):
        for peer in self.peers.values():
            peer.close()


class Order:
    """For victims that are to tell of their end before the cause of it does: files in a directory.

    A victim has raised, and ends when the cause has raised, too. The cause raises when the victims have, and does not
    end by itself.
    """

    def __init__(self, rank):
        self._directory = os.environ.get("MESH_ORDER", "")
        self._rank = rank
        if self._directory:
            # The error file has been written by then.
            atexit.register(self._has_raised)
        self.is_cause = False

    def _has_raised(self):
        self._touch(f"rank{self._rank}")
        if self.is_cause:
            self._touch("cause")
            signal.pause()
        self._await(lambda names: "cause" in names)

    def await_others(self, ranks):
        wanted = {f"rank{rank}" for rank in ranks}
        self._await(lambda names: wanted <= names)

    def _touch(self, name):
        with open(os.path.join(self._directory, name), "w"):
            pass

    def _await(self, condition):
        while not condition(set(os.listdir(self._directory))):
            time.sleep(RETRY_S)


def _meet_port():
    return MEET_PORT + int(os.environ["HOLDFAST_GENERATION"])


def compute(text):
    raise ValueError(text)


def stand_still_for_no_reason():
    time.sleep(LIFE_MAX_S)


class MeshWorker(Worker):
    def __init__(self, path, node):
        super().__init__(path, node, [])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.word = WAITS
        self.say("clock", time=time.time(), time_ns=time.time_ns())
        self.mesh = Mesh()
        self.order = Order(self.mesh.rank)
        self.say("together")

    def obey(self, command, argument):
        if command == "finish":
            self.word = WANTS_END
        elif command == "compute":
            compute(argument)
        elif command == "stall":
            stand_still_for_no_reason()
        elif command == "betray":
            self.order.is_cause = True
            self.mesh.part()
            self.order.await_others(json.loads(argument))
            compute("betrayed")
        else:
            raise ValueError(f"no command {command!r}")

    def run(self):
        while not (self.mesh.take_step(self.word) and self.word == WANTS_END):
            if select.select([self._socket], [], [], STEP_S)[0]:
                data = self._socket.recv(1 << 16)
                if not data:
                    sys.exit("the test that this worker belonged to is over")
                for line in data.decode().splitlines():
                    command, _, argument = line.partition(" ")
                    self.obey(command, argument)


def main(_ignored, path, node):
    signal.alarm(LIFE_MAX_S)
    MeshWorker(path, node).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
