"""Machines of a cluster, as the kernel can play them: network namespaces that a bridge joins.

A node has its own interfaces, loopback, host name and /etc/hosts; files, processes and the monotonic clock are the
machine's. The bridge is in a namespace of its own: where the tests run, there is nothing but names.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time

MAX_NODES = 200
PREFIX4, PREFIX6 = "10.77.0.", "fd00::"
"""Every network has these: they cannot see each other."""

END_MAX_S = 30.0
"""How long killed processes may take to be gone."""

_NAME = "holdfast-test"
_COMMAND_MAX_S = 30

_ENTER = 'echo "$1" > /proc/sys/kernel/hostname && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


class NetworkError(Exception):
    """The kernel or its tools refused something."""


class Node:
    """One machine of a network. Its index counts from 0, its addresses and its name from 1."""

    def __init__(self, namespace, index, hosts):
        self.namespace = namespace
        self.index = index
        self.hostname = f"node{index + 1}"
        self.address = f"{PREFIX4}{index + 1}"
        self.address6 = f"{PREFIX6}{index + 1:x}"
        self.hosts = hosts
        self._started = []

    @property
    def prefix(self):
        """What makes a command run here; every word of it is replaced by the next, so the pid stays."""
        enter = ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", _ENTER, "sh"]
        return [*enter, self.hostname, self.hosts]

    def run(self, command, **options):
        """Start a program here; `options` are those of `subprocess.Popen`, and its pid is the program's."""
        process = subprocess.Popen([*self.prefix, *map(str, command)], **options)
        self._started.append(process)
        return process

    def pids(self):
        """All that runs here, whoever started it."""
        return [int(pid) for pid in _ip("netns", "pids", self.namespace).split()]

    def kill_all(self):
        """End all that runs here, and whatever that starts in the meantime."""
        for process in self._started:  # one that was just started may not be in here yet
            process.kill()
            process.wait(END_MAX_S)
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        deadline = time.monotonic() + END_MAX_S
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise NetworkError(f"in {self.namespace} there still run {pids} after SIGKILL")
            time.sleep(0.005)  # the end of a process that is nobody's child here cannot be waited for

    def __repr__(self):
        return f"Node({self.hostname})"


class Network:
    """A context manager: so many nodes, all of which reach each other. At its end nothing is left of them."""

    def __init__(self, size):
        if not 0 < size <= MAX_NODES:
            raise ValueError(f"a network of {size} nodes: it can have 1 to {MAX_NODES}")
        # The maker's identifier tells a later run what nobody will remove any more.
        self._name = f"{_NAME}-{os.getpid()}-{secrets.token_hex(3)}"
        self._bridge = f"{self._name}-bridge"
        self._directory = _directory(self._name)
        self._maker = os.getpid()
        hosts = os.path.join(self._directory, "hosts")
        self.nodes = [Node(f"{self._name}-{index + 1}", index, hosts) for index in range(size)]

    def __enter__(self):
        atexit.register(self.close)
        try:
            _remove_leftovers()
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def _make(self):
        os.mkdir(self._directory, 0o700)
        with open(os.path.join(self._directory, "hosts"), "w") as file:
            file.write("127.0.0.1 localhost\n::1 localhost\n")
            file.writelines(f"{node.address} {node.hostname}\n" for node in self.nodes)
        _ip_batch([f"netns add {name}" for name in [self._bridge, *(node.namespace for node in self.nodes)]])
        wires = [
            f"link add {_port(node)} type veth peer name eth0 netns {node.namespace}\n"
            f"link set {_port(node)} master bridge up"
            for node in self.nodes
        ]
        # A port that comes up forwards at once, and neighbours are not filtered by what they subscribed to.
        bridge = "link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        _ip_batch([bridge, "link set bridge up", *wires], self._bridge)
        for node in self.nodes:
            addresses = [f"addr add {node.address}/24 dev eth0", f"addr add {node.address6}/64 dev eth0 nodad"]
            _ip_batch(["link set lo up", *addresses, "link set eth0 up"], node.namespace)

    def cut(self, node):
        """Pull the plug: what is sent from and to the node vanishes, and nobody is told."""
        _ip("-n", self._bridge, "link", "set", _port(node), "down")

    def mend(self, node):
        """Put the plug back."""
        _ip("-n", self._bridge, "link", "set", _port(node), "up")

    def part(self, node, others):
        """Drop what the node sends to some others, so that it and they do not hear each other. It stays that way."""
        _ip_batch([f"route add blackhole {other.address}/32" for other in others], node.namespace)

    def slow(self, node, delay_ms):
        """Let everything that is sent to the node take longer; 0 is as fast as can be."""
        qdisc = ["netem", "delay", f"{delay_ms}ms"] if delay_ms else ["pfifo"]
        try:
            _ip("netns", "exec", self._bridge, "tc", "qdisc", "replace", "dev", _port(node), "root", *qdisc)
        except NetworkError as error:
            raise NetworkError(f"{error}; to slow a link down, the kernel needs sch_netem") from None

    def limit(self, node, kbit_s):
        """Let no more than that be sent to the node; it waits, up to a second's worth, and `slow(node, 0)` ends it."""
        qdisc = ["tbf", "rate", f"{kbit_s}kbit", "burst", "16kb", "latency", "1s"]
        _ip("netns", "exec", self._bridge, "tc", "qdisc", "replace", "dev", _port(node), "root", *qdisc)

    def pids(self):
        return [pid for node in self.nodes for pid in node.pids()]

    def close(self):
        """Kill what runs in the nodes, and remove them. A second time does nothing."""
        atexit.unregister(self.close)
        if os.getpid() != self._maker:
            return  # a fork of the maker has not made it
        made = _names()
        for node in self.nodes:
            if node.namespace in made:
                node.kill_all()
        for name in (self._bridge, *(node.namespace for node in self.nodes)):
            if name in made:
                _ip("netns", "del", name)
        shutil.rmtree(self._directory, ignore_errors=True)


def _directory(name):
    """For the files of a network."""
    return os.path.join(tempfile.gettempdir(), name)


def _port(node):
    return f"port{node.index + 1}"


def _names():
    """The namespaces that there are, of this module's making."""
    try:
        return {name for name in os.listdir("/run/netns") if name.startswith(f"{_NAME}-")}
    except FileNotFoundError:
        return set()


def _remove_leftovers():
    """Remove the networks of processes that were killed and are no more."""
    for name in _names():
        maker = int(name.removeprefix(f"{_NAME}-").partition("-")[0])
        if not os.path.exists(f"/proc/{maker}"):
            with contextlib.suppress(NetworkError):  # somebody else may remove it at the same time
                Node(name, 0, "").kill_all()
                _ip("netns", "del", name)
            shutil.rmtree(_directory(name.rpartition("-")[0]), ignore_errors=True)


def _ip_batch(commands, namespace=None):
    options = ["-n", namespace] if namespace else []
    _ip(*options, "-batch", "-", text="\n".join(commands))


def _ip(*words, text=""):
    ran = subprocess.run(
        ["ip", *words], input=text, capture_output=True, text=True, timeout=_COMMAND_MAX_S, check=False
    )
    if ran.returncode:
        raise NetworkError(f"ip {' '.join(words)}: {ran.stderr.strip()}" + (f", in\n{text}" if text else ""))
    return ran.stdout
