"""Names of torch's that torch itself and others import although they are not public."""

from __future__ import annotations


def _get_fq_hostname() -> str:
    """This machine's name with its domain. `torch.distributed.checkpoint` saves in the background with it."""
    from socket import getfqdn

    return getfqdn()
