"""A worker that does nothing but what a test tells it: `python node_worker.py SOCKET NODE [WORD ...]`.

It connects to the socket, says in one JSON line who it is and what it was started with, and obeys lines from there.
Whatever else befalls it is one more line. It needs the standard library only and talks to nobody else.

Commands: `exit CODE`, `raise TEXT`, `kill SIGNAL` (itself), `print TEXT`, `ask-store` (the workers' store at
MASTER_PORT), and `deaf` (SIGTERM no longer ends it).
With the word `deaf` on its command line it is so from the start.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import time

LIFE_MAX_S = 600
"""Nobody waits that long for this; whoever started it is gone."""

VALIDATE, PING, MAGIC, NONCE = 0, 13, 0x3C85F7CE, b"ping"

_KEPT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_KEPT_PREFIXES = ("LOCAL_", "GROUP_", "ROLE_", "TORCHELASTIC_", "HOLDFAST_")


class Worker:
    def __init__(self, path, node, words):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._is_deaf = "deaf" in words
        self._woken, wakes = os.pipe()  # a signal that comes just before a wait ends it
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # its start is the first that a worker tells
        signal.signal(signal.SIGTERM, self._on_term)
        environment = {
            name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)
        }
        environment.pop("HOLDFAST_TOKEN", None)  # what is kept here is printed when a test fails
        self.say("start", node=node, pid=os.getpid(), words=words, host=socket.gethostname(), environment=environment)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])

    def say(self, event, **more):
        line = json.dumps({"event": event, "at_ns": time.monotonic_ns(), **more})
        self._socket.sendall(line.encode() + b"\n")

    def _on_term(self, _signum, _frame):
        self.say("SIGTERM")
        if not self._is_deaf:
            os._exit(128 + signal.SIGTERM)

    def obey(self, command, argument):
        if command == "deaf":
            self._is_deaf = True
        elif command == "ask-store":
            self.ask_store()
        elif command == "print":
            print(argument, flush=True)
        elif command == "exit":
            self.say("end")
            sys.exit(int(argument))
        elif command == "raise":
            self.say("end")
            raise RuntimeError(argument)
        elif command == "kill":
            self.say("end")
            os.kill(os.getpid(), int(argument))
            signal.pause()
        else:
            raise ValueError(f"no command {command!r}")
        self.say("done", command=command)

    def ask_store(self):
        """Greet the workers' store as torch does, and wait for its answer."""
        ping = bytes([PING]) + NONCE
        with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as store:
            store.sendall(bytes([VALIDATE]) + struct.pack("<I", MAGIC) + ping)
            answer = store.recv(len(NONCE), socket.MSG_WAITALL)
        assert answer == NONCE, answer

    def run(self):
        said = b""
        while True:
            readable, _, _ = select.select([self._socket, self._woken], [], [])
            if self._woken in readable:
                os.read(self._woken, 1024)
            if self._socket not in readable:
                continue
            data = self._socket.recv(65536)
            if not data:
                sys.exit("the test that this worker belonged to is over")
            *lines, said = (said + data).split(b"\n")
            for line in lines:
                command, _, argument = line.decode().partition(" ")
                self.obey(command, argument)


def main(path, node, *words):
    signal.alarm(LIFE_MAX_S)
    Worker(path, node, words).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
