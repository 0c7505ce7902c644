from __future__ import annotations

import pytest

from holdfast.coordination.loopback import is_loopback


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "ip6-localhost"])
def test_what_is_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["node7", "10.0.0.1", "fd00::1", "fe80::1%eth0", "localhost.example", "0.0.0.0"])
def test_what_is_not(host):
    assert not is_loopback(host)
