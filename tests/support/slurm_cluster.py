"""A real Slurm on the nodes of a network: its controller on the first of them, and a daemon on each."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

START_MAX_S = 60.0
END_MAX_S = 30.0

_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={first}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}
SlurmdSpoolDir={directory}/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/%n.log
SlurmctldDebug=error
SlurmdDebug=error
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
NodeName={nodes} CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class SlurmCluster:
    """Runs from the `with` on. `prefixes` are, by its name, what makes a command run on each machine.

    Whoever uses it needs `variables` in the environment.
    """

    def __init__(self, prefixes: dict[str, list[str]], directory: Path) -> None:
        self._prefixes = prefixes
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.variables = {"SLURM_CONF": str(directory / "slurm.conf")}

    def __enter__(self) -> Self:
        directory = self._directory
        directory.mkdir()
        names = list(self._prefixes)
        files = {
            "munge.key": os.urandom(128),
            "slurm.conf": _CONFIGURATION.format(first=names[0], nodes=",".join(names), directory=directory).encode(),
            "cgroup.conf": b"CgroupPlugin=cgroup/v1\n",  # which nothing of the above makes it use
        }
        for name, content in files.items():
            (directory / name).write_bytes(content)
            (directory / name).chmod(0o600)
        for name in names:
            (directory / name).mkdir()
        munge = {name: directory / f"munge.{name}" for name in ("socket", "pid", "log", "seed")}
        options = [f"--{name}{'' if name == 'socket' else '-file'}={path}" for name, path in munge.items()]
        try:
            self._start([], "munged", "--foreground", "--force", f"--key-file={directory}/munge.key", *options)
            _wait(munge["socket"].exists, "munged does not listen")
            self._start(self._prefixes[names[0]], "slurmctld", "-D")
            for prefix in self._prefixes.values():
                self._start(prefix, "slurmd", "-D")
            _wait(lambda: self._states() == ["idle"] * len(names), "not all nodes of Slurm are idle")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_MAX_S)
            process.kill()
            process.wait()
        self._processes.clear()

    def _start(self, prefix: list[str], *command: str) -> None:
        with (self._directory / "output").open("ab") as output:
            self._processes.append(
                subprocess.Popen(
                    [*prefix, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **self.variables},
                )
            )

    def _states(self) -> list[str]:
        """What the controller says of each node."""
        prefix = next(iter(self._prefixes.values()))
        ran = subprocess.run(
            [*prefix, "sinfo", "--noheader", "--Node", "--format=%T"],
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            timeout=START_MAX_S,
            check=False,
        )
        return ran.stdout.split()


def _wait(is_so, otherwise: str) -> None:
    deadline = time.monotonic() + START_MAX_S
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)  # Slurm tells nobody
