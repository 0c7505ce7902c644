"""Somebody else with a client of etcd: fills it, frees it again, or deletes a record of the run.

    foreign.py fill ENDPOINT,...
    foreign.py free ENDPOINT,...
    foreign.py delete ENDPOINT,... RUN_ID generation|node HOST

It speaks etcd's HTTP interface and prints what it did, as JSON.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import sys
from typing import Any

from holdfast.rendezvous.etcd_settings import ETCD_PREFIX
from holdfast.rendezvous.records import Keys

FOREIGN = "/foreign/"
VALUE_BYTES = 1 << 20
FILL_MAX = 1_000
ANSWER_MAX_S = 30.0


class RefusedError(Exception):
    """etcd does not do it, and says why."""


def post(endpoint: str, path: str, **message: Any) -> dict[str, Any]:
    connection = http.client.HTTPConnection(endpoint, timeout=ANSWER_MAX_S)
    try:
        connection.request("POST", f"/v3/{path}", json.dumps(message))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RefusedError(text.decode(errors="replace"))
        found: dict[str, Any] = json.loads(text)
        return found
    finally:
        connection.close()


def word(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def prefix(text: str) -> dict[str, str]:
    """The range of all keys that begin so."""
    return {"key": word(text), "range_end": word(text[:-1] + chr(ord(text[-1]) + 1))}


def fill(endpoints: list[str]) -> dict[str, Any]:
    """Write until etcd raises its alarm, then small things until it refuses those, too."""
    value = base64.b64encode(bytes(VALUE_BYTES)).decode()
    for number in range(FILL_MAX):
        try:
            post(endpoints[0], "kv/put", key=word(f"{FOREIGN}{number}"), value=value)
        except RefusedError as error:
            return {"values": number, "refused": str(error)[:200]}
    raise SystemExit(f"etcd took {FILL_MAX} MiB; it has no quota")


def free(endpoints: list[str]) -> dict[str, Any]:
    """As an administrator does it: delete, compact, defragment every member, disarm."""
    deleted = post(endpoints[0], "kv/deleterange", **prefix(FOREIGN))
    with contextlib.suppress(RefusedError):  # it was compacted before
        post(endpoints[0], "kv/compaction", revision=deleted["header"]["revision"], physical=True)
    for endpoint in endpoints:
        post(endpoint, "maintenance/defragment")
    alarms = post(endpoints[0], "maintenance/alarm", action="GET").get("alarms", [])
    for alarm in alarms:
        post(endpoints[0], "maintenance/alarm", action="DEACTIVATE", **alarm)
    return {"alarms": len(alarms)}


def delete(endpoints: list[str], run_id: str, what: str, host: str) -> dict[str, Any]:
    """Delete the generation's record, or that of the node that runs on a host."""
    keys = Keys(run_id)
    if what == "generation":
        key = word(f"{ETCD_PREFIX}{keys.generation}")
    else:
        nodes = post(endpoints[0], "kv/range", **prefix(f"{ETCD_PREFIX}{keys.nodes}")).get("kvs", [])
        key = next((each["key"] for each in nodes if json.loads(base64.b64decode(each["value"]))["host"] == host), "")
    deleted = post(endpoints[0], "kv/deleterange", key=key) if key else {}
    if not deleted.get("deleted"):
        raise SystemExit(f"there is no record of the {what} of {run_id} {host}")
    return {"record": what, "deleted": int(deleted["deleted"])}


def main() -> None:
    action, endpoints, *rest = sys.argv[1:]
    actions = {"fill": fill, "free": free, "delete": delete}
    print(json.dumps(actions[action](endpoints.split(","), *rest)))  # type: ignore[operator]  # functions with several signatures


if __name__ == "__main__":
    main()
