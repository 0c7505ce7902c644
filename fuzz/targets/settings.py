"""The settings of a rendezvous: `--rdzv-conf`, the endpoint and the run id, with any values.

An input is a backend's number, an endpoint, a run id and settings, with NULs between them.

Promises: what cannot be used is an `InputError` of one line. What is accepted has limits that make sense: times above
0, a lease that the store grants, and a rank that a node can have.
"""

from __future__ import annotations

from unittest import mock

from fuzz.oracles import check_one_line, promise
from fuzz.shapes import WORDS
from fuzz.target import Target
from fuzz.targets.command_line import ERROR_EXTRA_CHARS, ERROR_FACTOR, TOKEN
from holdfast.cli.configuration import rdzv_settings
from holdfast.coordination.keyspace import TTL_MAX_S, TTL_MIN_S
from holdfast.errors.tree import InputError
from holdfast.rendezvous.elastic_settings import RUN_ID_MAX_BYTES, ElasticSettings
from holdfast.rendezvous.known_settings import KEYS
from holdfast.rendezvous.parameters import RendezvousParameters
from holdfast.rendezvous.records import NO_RANK, Keys

MAX_NODES = 4
BACKENDS = tuple(KEYS)
FILES = frozenset(("token_file",))
"""Settings that name files, which an input is not to choose."""


def _run(data: bytes) -> None:
    words = [*data.decode("utf-8", "surrogateescape").split("\0"), "", "", "", ""]
    backend = words[0] if words[0] in BACKENDS else BACKENDS[0]
    try:
        settings = {key: value for key, value in rdzv_settings(words[3]).items() if key not in FILES}
        params = RendezvousParameters(backend, words[1], words[2], 1, MAX_NODES, None, **settings)
        with mock.patch("holdfast.logger.Logger.warning"):
            found = ElasticSettings(params, {"HOLDFAST_TOKEN": TOKEN, "SLURM_PROCID": words[0]})
    except InputError as error:
        check_one_line(" ".join(str(error).split()), "an error", ERROR_FACTOR * len(data) + ERROR_EXTRA_CHARS)
        return
    promise(TTL_MIN_S <= found.ttl_s <= TTL_MAX_S, f"a lease of {found.ttl_s} s")
    promise(found.keep_alive_s > 0 and found.close_timeout_s > 0, "a time of 0 s or less")
    promise(found.rank == NO_RANK or 0 <= found.rank < MAX_NODES, f"the rank {found.rank}")
    promise(len(Keys(words[2]).run.encode()) <= RUN_ID_MAX_BYTES + 50, "the keys of a run are too long")


def _seeds() -> list[bytes]:
    keys = sorted(set().union(*KEYS.values()))
    each = [f"{backend}\0node0:1\0job\0{key}={value}" for backend in BACKENDS for key in keys for value in ("1", "x")]
    some = "c10d\0[::1]:29400\0job7\0join_timeout=60,keep_alive_interval=0.5,keep_alive_max_attempt=4,is_host=true"
    return [
        text.encode()
        for text in (*each, some, "3\0node0\0\xe9\0'rank=2'", 'etcd\0https://a:1,b\0job\0"user=u,password=p"')
    ]


TARGETS = (Target("settings", _run, _seeds, WORDS),)
