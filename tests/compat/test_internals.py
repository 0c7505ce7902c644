from __future__ import annotations

import socket

from holdfast.compat.internals import _get_fq_hostname


def test_the_name_of_this_machine():
    assert _get_fq_hostname() == socket.getfqdn(socket.gethostname())
