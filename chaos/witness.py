"""Says how slow the machine is: asks for nothing but an answer, again and again, and writes down when that took long.

Its arguments are the seconds that are long, a file, and the members of etcd as HOST:PORT, if there are any. It is on a
node of its own that nothing is done to. Without etcd it only looks at how late it is woken.

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

_WORD = json.dumps({"key": "d2l0bmVzcw==", "value": ""})  # base64: witness


def main() -> None:
    long_s, path, *members = sys.argv[1:]
    with open(path, "a") as file:
        for turn in itertools.count():
            began = time.monotonic()
            ask(members, turn)
            time.sleep(PERIOD_S)
            took_s = time.monotonic() - began - PERIOD_S
            if took_s > float(long_s):
                file.write(json.dumps({"began_s": round(began, 3), "took_s": round(took_s, 3)}) + "\n")
                file.flush()


def ask(members: Sequence[str], turn: int) -> None:
    """Have a member write something, which takes a majority of them; of those that are down, ask another."""
    for place in range(len(members)):
        connection = http.client.HTTPConnection(members[(turn + place) % len(members)], timeout=ANSWER_MAX_S)
        try:
            connection.request("POST", "/v3/kv/put", _WORD)
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        except OSError:
            continue
        finally:
            connection.close()


if __name__ == "__main__":
    main()
