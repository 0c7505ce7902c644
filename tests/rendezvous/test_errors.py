"""What can go wrong in a rendezvous."""

from __future__ import annotations

import pytest
from decisions import FAILURE

from holdfast.errors.tree import Category
from holdfast.rendezvous.errors import (
    JobFailedError,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousStateError,
    RendezvousTimeoutError,
)


@pytest.mark.parametrize(
    "error",
    [
        RendezvousClosedError,
        RendezvousConnectionError,
        RendezvousGracefulExitError,
        RendezvousStateError,
        RendezvousTimeoutError,
    ],
)
def test_errors_of_a_rendezvous_are_the_infrastructures(error):
    assert error.category is Category.INFRASTRUCTURE
    assert issubclass(error, RendezvousError)


def test_a_job_that_failed_is_closed_and_says_why():
    error = JobFailedError("rank 0 failed", FAILURE, victims=3, ruling="no restart is left")
    assert isinstance(error, RendezvousClosedError)
    assert (str(error), error.failure, error.victims) == ("rank 0 failed", FAILURE, 3)
    assert (error.ruling, JobFailedError("", FAILURE).victims) == ("no restart is left", 0)
