"""Where the agents of a test's job meet: one of them serves, or a cluster of etcd members beside them."""

from __future__ import annotations

import os
import signal

PORT = 29400
TOKEN = "a token that only the test knows"
PASSWORD = "a-password-that-only-the-test-knows"


class Embedded:
    """The agent of the first node serves the others."""

    backend = "c10d"
    extra_nodes = 0

    def __init__(self, network, directory):
        self.endpoint = f"{network.nodes[0].address}:{PORT}"
        self.environment = {"HOLDFAST_TOKEN": TOKEN}

    def close(self):
        pass


class Etcd:
    """Three members, each on a node of its own: the network's last."""

    backend = "etcd"
    extra_nodes = 3
    options = ()
    has_tls = False

    def __init__(self, network, directory):
        from etcd_cluster import EtcdCluster

        self._network = network
        self._nodes = nodes = network.nodes[-self.extra_nodes :]
        hosts, commands = [node.address for node in nodes], [node.prefix for node in nodes]
        self.cluster = EtcdCluster(
            len(nodes),
            directory / "etcd",
            hosts,
            commands,
            options=self.options,
            with_tls=self.has_tls,
            wants_client_certs=False,
        )
        self.cluster.__enter__()
        self.endpoint = ",".join(f"{host}:{port}" for host, port in self.cluster.endpoints)
        self.environment = {}

    def lose_leader(self, way="killed"):
        """Lose the member that leads: `killed`, `stopped` (SIGSTOP), `cut` off from everybody, or `parted`: cut off
        from the other members, while agents still reach it.
        """
        leader = self.cluster.leader()
        if way == "killed":
            self.cluster.kill(leader)
        elif way == "stopped":
            os.kill(self.cluster.members[leader].process.pid, signal.SIGSTOP)
        elif way == "cut":
            self._network.cut(self._nodes[leader])
        elif way == "parted":
            self._network.part(self._nodes[leader], [node for node in self._nodes if node is not self._nodes[leader]])
        else:
            raise ValueError(way)

    def close(self):
        self.cluster.close()


class EtcdWithPreVote(Etcd):
    """As etcd 3.5 runs unless told otherwise: a member asks whether it could win before it stands for election."""

    options = ("--pre-vote",)


class SmallEtcd(Etcd):
    """One member that holds very little: see `EtcdCluster.fill`."""

    extra_nodes = 1
    options = ("--quota-backend-bytes=4194304",)


class EtcdWithTls(Etcd):
    """One member with TLS and passwords. The machines of the job trust its authority as they trust all others."""

    extra_nodes = 1
    has_tls = True
    settings = f"user=root,password={PASSWORD}"

    def __init__(self, network, directory):
        super().__init__(network, directory)
        self.cluster.require_passwords(PASSWORD)
        self.endpoint = f"https://{self.endpoint}"
        self.environment = {"SSL_CERT_FILE": self.cluster.certificates.ca_cert}


PLACES = {
    "embedded": Embedded,
    "etcd": Etcd,
    "etcd with pre-vote": EtcdWithPreVote,
    "small etcd": SmallEtcd,
    "etcd with tls": EtcdWithTls,
}
