"""Transcripts of an agent: what happens to it, and everything that it does about it, as text that people read.

A transcript has comments (``#``), settings, and events (``>``). Under each event stand the effects in their order, and
then the phase (``=``). What the shell hears while it carries out an effect (that workers have stopped, that nodes have
met) is an event of its own.

| event | means |
|---|---|
| ``the agent begins`` | the first event of every transcript |
| ``the nodes meet``, ``... after 2 restarts`` | the rendezvous is over; the number is the job's |
| ``the workers run``, ``the workers are gone`` | of one attempt |
| ``a worker fails`` | the others are being stopped |
| ``the workers fail`` | all are gone; ``... at train.py:3``, ``... after 100 s``, ``... and are stuck`` |
| ``the workers fail by a fault of the machine`` | or of the network |
| ``the workers hang`` | they run, and make no progress |
| ``the workers succeed``, ``the workers are fenced`` | |
| ``the round is over``, ``... and workers may finish`` | what the other nodes want |
| ``the workers have 30 s`` | they know that they should end |
| ``time is up`` | of a pause, or of workers that should end |
| ``everybody is done``, ``the others need this node`` | the end of the exit barrier |
| ``the job fails``, ``this node is not needed`` | the word of the rendezvous |
| ``SIGTERM comes`` | |
| ``5 s pass`` | |
"""

from __future__ import annotations

import re

import transcript

from holdfast.agent import core
from holdfast.agent import core_model as model
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.restarts import Fault
from holdfast.settings import RestartLimits


def replay(text):
    """The transcript with what its events lead to now."""
    return transcript.replay(text, Stage)


class Stage:
    """An agent's state, and the time."""

    def __init__(self, settings):
        given = dict(re.findall(r"([a-z_]+) (\S+)", settings.removeprefix("settings:").replace(",", " ")))
        self._state = model.AgentState(
            RestartLimits(int(given.pop("restarts")), float(given.pop("window", "0")), given.pop("policy", "auto")),
            given.pop("nodes") != "1",
        )
        self._now = 0.0
        assert not given, f"unknown settings: {given}"

    def play(self, words):
        if passed := re.fullmatch(r"(\S+) s pass", words):
            self._now += float(passed[1])
            return
        if words == "the agent begins":
            effects = (model.StartSet(),)
        else:
            self._state, effects = core.step(self._state, self._event(words), self._now)
        for effect in effects:
            yield f"    {told(effect)}"
        state = self._state
        until = "" if state.until is None else f", until {state.until:g} s"
        outcome = "" if state.outcome is None else f", {state.outcome}"
        yield f"  = {state.phase}{outcome}, restart {state.restarts} of {state.max_restarts}{until}"

    def _event(self, words):
        if words.startswith(("the workers fail", "the workers hang")):
            return self._failure(words)
        if met := re.fullmatch(r"the nodes meet(?: after (\d+) restarts?)?", words):
            return model.Met(None if met[1] is None else int(met[1]))
        if asked := re.fullmatch(r"the workers have (\S+) s", words):
            return model.Asked(self._now + float(asked[1]))
        if signal := re.fullmatch(r"(SIG\w+) comes", words):
            return model.Signalled(signal[1], f"the agent got {signal[1]}")
        return EVENTS[words]

    def _failure(self, words):
        place = re.search(r" at (\S+)", words)
        ran = re.search(r" after (\S+) s", words)
        kind = FailureKind.COMMUNICATION if "by a fault of the machine" in words else FailureKind.EXCEPTION
        fault = Fault(kind, float(ran[1]) if ran else 1.0, f"ValueError at {place[1]}" if place else "")
        if words.startswith("the workers hang"):
            return model.HangFound(fault, "rank 1 failed: it hangs")
        return model.SetFailed(fault, "rank 1 failed: ValueError", "stuck" in words)


EVENTS = {
    "the workers run": model.Started(),
    "the workers are gone": model.Stopped(),
    "a worker fails": model.WorkerExited(),
    "the workers succeed": model.SetSucceeded(),
    "the workers are fenced": model.SetFenced(),
    "the round is over": model.RoundOver("lost node3"),
    "the round is over and workers may finish": model.RoundOver("letting in node4", may_finish=True),
    "time is up": model.DeadlinePassed(),
    "everybody is done": model.BarrierLeft(),
    "the others need this node": model.BarrierLeft("node3 failed"),
    "the job fails": model.JobFailed("restarts: 3 of 3"),
    "this node is not needed": model.NotNeeded("the job has succeeded"),
}


def told(effect):
    """An effect in words."""
    words = re.sub(r"(?<!^)([A-Z])", r" \1", type(effect).__name__).lower()
    return " ".join([words, *(_shown(name, value) for name, value in effect.__dict__.items() if value != "")])


def _shown(name, value):
    if isinstance(value, bool):
        return name if value else f"not {name}"
    if isinstance(value, float):
        return f"{value:g} s"
    return str(value) if isinstance(value, (int, model.Outcome)) else f'"{value}"'
