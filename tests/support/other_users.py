"""Being another user for a moment. What is opened meanwhile stays that user's. Only root can."""

from __future__ import annotations

import os
from contextlib import contextmanager

ALICE, MALLORY = 54_321, 54_322
"""Users whom no machine has."""


@contextmanager
def as_user(user):
    """Every thread of this process is that user's."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
