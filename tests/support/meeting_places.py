"""Where the agents of a test's job meet: one of them serves, or a cluster of etcd members beside them."""

from __future__ import annotations

PORT = 29400
TOKEN = "a token that only the test knows"


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

    def __init__(self, network, directory):
        from etcd_cluster import EtcdCluster

        nodes = network.nodes[-self.extra_nodes :]
        hosts, commands = [node.address for node in nodes], [node.prefix for node in nodes]
        self.cluster = EtcdCluster(len(nodes), directory / "etcd", hosts, commands).__enter__()
        self.endpoint = ",".join(f"{host}:{port}" for host, port in self.cluster.endpoints)
        self.environment = {}

    def lose_leader(self):
        self.cluster.kill(self.cluster.leader())

    def close(self):
        self.cluster.close()


PLACES = {"embedded": Embedded, "etcd": Etcd}
