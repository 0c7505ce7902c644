"""An embedded server as a process of its own.

Run as a program it serves on a free port of the loopback interface, writes the port, and ends with its standard input.
Its arguments are how many descriptors it may have (0 for as many as there are), `tls` for a certificate of its own, the
number of the user that it runs as, and another address to serve at, if any.
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

    def __init__(self, descriptors_max=0, *, has_tls=False, user=None):
        user = os.geteuid() if user is None else user
        self._arguments = [str(descriptors_max), "tls" if has_tls else "plain", str(user)]

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__, *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
        return self._memory("VmHWM:")

    def memory_bytes(self):
        return self._memory("VmRSS:")

    def _memory(self, what):
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith(what))


async def serve(has_tls, user, host="127.0.0.1"):
    import encodings.idna  # noqa: F401 - all that is imported: another user may not read where it is

    from holdfast.coordination import local_users  # noqa: F401 - the same
    from holdfast.coordination.server import EmbeddedServer
    from holdfast.coordination.tls import own_server_tls

    os.setuid(user)
    server = EmbeddedServer(token=TOKEN, tls=own_server_tls() if has_tls else None)
    await server.start(host, 0)
    print(server.address[1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(0)
    await server.close()


if __name__ == "__main__":
    descriptors = int(sys.argv[1])
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    asyncio.run(serve(sys.argv[2] == "tls", int(sys.argv[3]), *sys.argv[4:]))
