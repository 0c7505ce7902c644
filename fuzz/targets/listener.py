"""What `holdfast doctor` makes of the first bytes that something at a port says.

Promises: nothing is raised, and what is quoted is one short line that is fit for a terminal.
"""

from __future__ import annotations

from fuzz.oracles import check_line
from fuzz.shapes import BYTES
from fuzz.target import Target
from fuzz.targets.wire import HANDSHAKES, framed
from holdfast.rendezvous.listener import _judged

QUOTE_MAX_CHARS = 600


def _run(data: bytes) -> None:
    found = _judged(data)
    if found is not None:
        check_line(found.said.replace("\t", " "), "what a listener said", QUOTE_MAX_CHARS)


def _seeds() -> list[bytes]:
    return [
        *(framed([each], 0) for each in HANDSHAKES),
        b'HTTP/1.1 200 OK\r\n\r\n{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}',
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
    ]


TARGETS = (Target("listener", _run, _seeds, BYTES),)
