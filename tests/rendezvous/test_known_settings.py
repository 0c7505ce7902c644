"""Which settings there are, and what is said of those that there are not."""

from __future__ import annotations

import pytest

from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousParameters, rendezvous_handler_registry


def alone(backend="static", **config):
    """A handler of a single node, which meets nobody."""
    return rendezvous_handler_registry.create_handler(RendezvousParameters(backend, "", "run", 1, 1, **config))


def several(backend="static", **config):
    """A handler of one of several nodes, none of which has to be there."""
    endpoint = "127.0.0.1:29431"
    return rendezvous_handler_registry.create_handler(
        RendezvousParameters(backend, endpoint, "run", 2, 2, **{"rank": 1, **config})
    )


@pytest.mark.parametrize(
    ("make", "backend", "key", "said"),
    [
        (alone, "static", "join_timeut", "no backend has such a setting; did you mean join_timeout?"),
        (alone, "static", "nonsense", "no backend has such a setting"),
        (alone, "c10d", "tokenfile", "the backend c10d has no such setting; did you mean token_file?"),
        (alone, "etcd", "pasword", "the backend etcd has no such setting; did you mean password?"),
        (several, "static", "store_user", "the backend static has no such setting; did you mean store_users?"),
        (several, "static", "is_host", "the backend static has no such setting; the backend c10d has it"),
        (several, "c10d", "meeting_port", "the backend c10d has no such setting; the backend static has it"),
        (several, "c10d", "JOIN_TIMEOUT", "the backend c10d has no such setting; did you mean join_timeout?"),
        (several, "c10d", "close-timeout", "the backend c10d has no such setting; did you mean close_timeout?"),
        # A guess would be wrong here: cert is etcd's name for ssl_cert, and looks like ca_cert.
        (several, "c10d", "cert", "the backend c10d has no such setting; the backend etcd has it"),
    ],
)
def test_an_unknown_setting_is_named_with_the_nearest_known_one(make, backend, key, said, caplog):
    make(backend, **{key: "1"}).shutdown()
    assert [record.getMessage() for record in caplog.records] == [f"--rdzv-conf {key}: {said}"]


def test_a_single_node_without_a_backend_takes_the_settings_of_all(caplog):
    """A command line that is tried on one machine first is not wrong there."""
    alone(
        token="secret",
        is_host="true",
        user="somebody",
        etcd_prefix="/",
        meeting_port=7,
        timeout=900,
        store_host="agent",
    ).shutdown()
    assert caplog.text == ""


def test_nodes_that_were_told_their_ranks_take_the_settings_of_a_store(caplog):
    made = several(token="secret", meeting_port=7, timeout=900, join_timeout=7, store_host="agent", store_users="any")
    made.shutdown()
    assert caplog.text == ""


def test_the_timeout_of_a_static_job_is_a_time():
    with pytest.raises(InputError, match="--rdzv-conf timeout=soon: write a number of seconds"):
        several(timeout="soon")


@pytest.mark.parametrize("make", [alone, several])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"join_timeout": "soon"}, "--rdzv-conf join_timeout=soon: write a number of seconds"),
        ({"last_call_timeout": "0"}, "--rdzv-conf last_call_timeout=0: must be more than 0 seconds"),
        ({"close_timeout": "nan"}, "--rdzv-conf close_timeout=nan: must be more than 0 seconds"),
        ({"steady_time": "-1"}, "--rdzv-conf steady_time=-1: must be more than 0 seconds"),
        ({"keep_alive_interval": "x"}, "--rdzv-conf keep_alive_interval=x: write a number of seconds"),
        ({"keep_alive_interval": "1e6"}, "keep_alive_interval=1e.06,keep_alive_max_attempt=3: "),
        ({"keep_alive_max_attempt": "1"}, "--rdzv-conf keep_alive_max_attempt=1: must be at least 2"),
    ],
)
def test_a_value_that_no_backend_takes_is_refused_without_one_too(make, config, message):
    with pytest.raises(InputError, match=message):
        make(**config)


@pytest.mark.parametrize(("make", "backend"), [(alone, "static"), (alone, "c10d"), (several, "c10d")])
def test_whether_a_node_is_the_host_is_yes_or_no(make, backend):
    with pytest.raises(InputError, match="--rdzv-conf is_host=perhaps: write is_host=true or is_host=false"):
        make(backend, is_host="perhaps")


@pytest.mark.parametrize("backend", ["static", "c10d", "etcd"])
def test_the_rank_of_a_single_node_is_a_number(backend):
    with pytest.raises(InputError, match="--rdzv-conf rank=first: write a whole number"):
        alone(backend, rank="first")
