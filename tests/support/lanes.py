"""The tests on several lanes at once: `python tests/support/lanes.py [--lanes N] [what pytest takes]`.

Every lane is a pytest of its own that collects all tests and runs the files that no other lane has taken. Most tests
wait for processes, so more lanes than processors pay. A lane has one thread, as a process that starts workers usually
has: pytest-xdist's have two, and holdfast starts its keeper in another way there.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

import pytest

LANES = 3
SLOWEST = 12
"""So many of the files that took longest are listed."""

FIRST = ("integration", "warm", "chaos", "docs", "frameworks", "processes")
"""The directories with the files that take longest: a long one that begins last keeps all others waiting."""


class Lane:
    """A pytest plugin that runs the files it can claim."""

    def __init__(self, claims):
        self._claims = claims
        self._durations = collections.Counter()
        self._outcomes = collections.Counter()
        self._collected = 0

    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: _place(item.location[0]))
        self._collected = len(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        """As pytest's own, with the tests that are ours."""
        if session.testsfailed or session.config.option.collectonly:
            return None  # it knows what to say of tests that cannot be collected
        # A file is claimed one test early: the end of a test depends on which one is next.
        for item, following in itertools.pairwise(itertools.chain(self._ours(session.items), [None])):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True

    def _ours(self, items):
        for file, tests in itertools.groupby(items, key=lambda item: item.location[0]):
            if _claimed(os.path.join(self._claims, file.replace(os.sep, "+"))):
                yield from tests

    def pytest_runtest_logreport(self, report):
        self._durations[report.location[0]] += report.duration
        if report.when == "call" or report.outcome != "passed":
            self._outcomes[report.outcome] += 1

    def pytest_sessionfinish(self):
        result = {"collected": self._collected, "outcomes": self._outcomes, "durations": self._durations}
        with open(os.path.join(self._claims, f"{os.getpid()}.json"), "w") as file:
            json.dump(result, file)


def _place(file):
    directory = file.split(os.sep)[1]
    return FIRST.index(directory) if directory in FIRST else len(FIRST)


def _claimed(path):
    """Whether we are the first to want it."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("--claims", help=argparse.SUPPRESS)
    options, words = parser.parse_known_args()
    if options.claims:
        return pytest.main(["-p", "no:cacheprovider", *words], plugins=[Lane(options.claims)])
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-lanes-") as claims:
        command = [sys.executable, __file__, "--claims", claims, *words]
        # The first speaks here and now, to show that all goes on; the others when they are done.
        lanes = [subprocess.Popen(command)]
        outputs = [os.path.join(claims, f"{number}.out") for number in range(2, options.lanes + 1)]
        for path in outputs:
            with open(path, "wb") as file:
                lanes.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))
        codes = [lane.wait() for lane in lanes]
        for number, path in enumerate(outputs, 2):
            with open(path, errors="replace") as file:
                print(f"\nlane {number}:\n{file.read()}", flush=True)
        results = [_result(os.path.join(claims, f"{lane.pid}.json")) for lane in lanes]
    return _summary(codes, results, time.monotonic() - began)


def _result(path):
    """What became of a lane; nothing if it broke down."""
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return {"collected": 0, "outcomes": {}, "durations": {}}


def _summary(codes, results, took_s):
    """Tell what all lanes did, and return the exit code: 0 if every test ran and none failed."""
    durations, outcomes = collections.Counter(), collections.Counter()
    for result in results:
        durations.update(result["durations"])
        outcomes.update(result["outcomes"])
    print("\nslowest files:")
    for file, duration_s in durations.most_common(SLOWEST):
        print(f"{duration_s:8.1f} s  {file}")
    collected = max(result["collected"] for result in results)
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"\n{len(codes)} lanes: {told} in {took_s:.0f} s")
    broken = [code for code in codes if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)]
    if broken:
        print(f"lanes that broke down: exit codes {broken}")
    elif sum(outcomes.values()) < collected:
        print(f"{collected} tests were collected: not all of them ran")
        return 1
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
