"""Three members of etcd lose their leader while a job runs. Its workers must not notice."""

from __future__ import annotations

import pytest

from holdfast.rendezvous.backends import ETCD_KEEP_ALIVE_ATTEMPTS
from holdfast.rendezvous.known_settings import KEEP_ALIVE_INTERVAL_S

pytestmark = [pytest.mark.root, pytest.mark.etcd]

LEASE_S = ETCD_KEEP_ALIVE_ATTEMPTS * KEEP_ALIVE_INTERVAL_S


@pytest.mark.parametrize("way", ["stopped", "cut", "killed", "parted"])
@pytest.mark.parametrize("place_name", ["etcd", "etcd with pre-vote"], indirect=True)
def test_workers_run_on_when_the_leader_is_lost(job, way):
    two = job("2")
    agents = two.start(*two.nodes)
    world = two.wait_for_world(4)
    two.place.lose_leader(way)
    # Workers whose node cannot renew its lease are stopped before the lease is over.
    assert two.stays(lambda: not any(life.has_ended for life in world), LEASE_S), two.describe()
    # The nodes still hear of each other: a crash on one restarts both, once.
    two.tell(world[3:], "exit 7")
    again = two.wait_for_world(4, after=world)
    assert {life.restart_count for life in again} == {1}
    two.tell_all("exit 0")
    assert two.wait_for_exit(*agents) == [0, 0], two.describe()
    two.check()
