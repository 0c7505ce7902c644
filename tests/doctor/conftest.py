from __future__ import annotations

import os

import pytest

from holdfast.doctor.context import Accelerators, Context


@pytest.fixture
def make_context():
    """A context of a machine with four CPUs and no GPU: `make_context(workers=2)`."""

    def make(**fields):
        return Context(**{"accelerators": Accelerators(4, 0, 0), "environ": {"PATH": os.environ["PATH"]}, **fields})

    return make
