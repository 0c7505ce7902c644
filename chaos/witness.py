"""Says how slow the machine is: asks for nothing but an answer, again and again, and writes down when that took long.

Its arguments are the seconds that are long, a file, and the members of etcd as HOST:PORT, if there are any. It is on a
node of its own that nothing is done to. Without etcd it only looks at how late it is woken. `late_s` of what it writes
is that part alone: a storm that disturbs etcd itself cannot have caused it.

A storm takes much of a machine. Where it takes too much, a lease cannot be kept, and a node that gives up its workers
then is right. The checker has to know when that was, and not from the node itself.
"""

from __future__ import annotations

import http.client
import itertools
import json
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PERIOD_S = 0.2
ANSWER_MAX_S = 5.0
"""How long all members together have, before the witness gives up for this time."""

TRY_S = 0.5
"""How long one member has: one that is stopped or has no leader must not hide that another answers."""

_WORD = json.dumps({"key": "d2l0bmVzcw==", "value": ""})  # base64: witness


def main() -> None:
    long_s, path, *members = sys.argv[1:]
    with open(path, "a") as file:
        for turn in itertools.count():
            began = time.monotonic()
            ask(members, turn)
            answered = time.monotonic()
            time.sleep(PERIOD_S)
            late_s = time.monotonic() - answered - PERIOD_S
            took_s = answered - began + late_s
            if took_s > float(long_s):
                entry = {"began_s": round(began, 3), "took_s": round(took_s, 3), "late_s": round(late_s, 3)}
                file.write(json.dumps(entry) + "\n")
                file.flush()


def ask(members: Sequence[str], turn: int) -> None:
    """Have a member write something, which takes a majority of them. One that does not answer is asked again when the
    others have been; if all of them are down, nothing can be learned.
    """
    deadline = time.monotonic() + ANSWER_MAX_S
    may_answer = bool(members)
    while may_answer and time.monotonic() < deadline:
        may_answer = False
        for place in range(len(members)):
            try:
                if _put(members[(turn + place) % len(members)]) < http.HTTPStatus.INTERNAL_SERVER_ERROR:
                    return
                may_answer = True  # it has no leader
            except TimeoutError:
                may_answer = True
            except OSError:
                continue


def _put(member: str) -> int:
    connection = http.client.HTTPConnection(member, timeout=TRY_S)
    try:
        connection.request("POST", "/v3/kv/put", _WORD)
        return connection.getresponse().status
    finally:
        connection.close()


if __name__ == "__main__":
    main()
