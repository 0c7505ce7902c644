"""An embedded server as a process of its own.

Run as a program it serves on a free port of the loopback interface, writes the port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys

TOKEN = b"secret"


class ServerProcess:
    """Use it as a context manager. `address` is where it serves."""

    def __init__(self, descriptors_max=None):
        self._descriptors_max = descriptors_max

    def __enter__(self):
        argument = [] if self._descriptors_max is None else [str(self._descriptors_max)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address = ("127.0.0.1", int(self._process.stdout.readline()))
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self):
        return self._process.pid

    def hold(self):
        """Stop it, as a cut cable does: connections stay and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def let_go(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def finish(self):
        """End it in good order; returns its exit code."""
        self._process.communicate()
        return self._process.returncode

    def memory_peak_bytes(self):
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


async def serve():
    from holdfast.coordination.server import EmbeddedServer

    server = EmbeddedServer(token=TOKEN)
    await server.start("127.0.0.1", 0)
    print(server.address[1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(0)
    await server.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
    asyncio.run(serve())
