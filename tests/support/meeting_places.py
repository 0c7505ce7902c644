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
    """Three members on a node of their own, the network's last."""

    backend = "etcd"
    extra_nodes = 1

    def __init__(self, network, directory):
        from etcd_cluster import EtcdCluster

        node = network.nodes[-1]
        place = directory / "etcd"
        place.mkdir()
        self.cluster = EtcdCluster(3, place, hosts=[node.address] * 3, prefixes=[node.prefix] * 3)
        self.cluster.__enter__()
        self.endpoint = ",".join(self.cluster.endpoints)
        self.environment = {}

    def lose_leader(self):
        self.cluster.kill(self.cluster.leader())

    def close(self):
        self.cluster.__exit__(None, None, None)


PLACES = {"embedded": Embedded, "etcd": Etcd}
