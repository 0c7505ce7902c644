"""Virtual time: what happens next is what was planned for the earliest moment, first planned first."""

from __future__ import annotations

from heapq import heappop, heappush


class Clock:
    def __init__(self):
        self.now = 0.0
        self._plans = []
        self._planned = 0

    def at(self, when, act, *arguments):
        """Call `act` at that time; what lies in the past happens now."""
        self._planned += 1
        heappush(self._plans, (max(when, self.now), self._planned, act, arguments))

    def after(self, delay_s, act, *arguments):
        self.at(self.now + delay_s, act, *arguments)

    def run(self, until, is_over=None):
        """Let time pass until `until`, or until `is_over()`; returns whether it was the latter."""
        plans = self._plans
        while plans and plans[0][0] <= until:
            if is_over is not None and is_over():
                return True
            when, _, act, arguments = heappop(plans)
            self.now = when
            act(*arguments)
        self.now = max(self.now, until)
        return is_over is not None and is_over()
