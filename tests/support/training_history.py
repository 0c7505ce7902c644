"""What the history of `examples/train_ddp.py` must be like, whatever befell the training."""

from __future__ import annotations


def notable(facts):
    """All but the steps: where workers went on, and what was saved."""
    return [fact for fact in facts if "step" not in fact]


def steps_that_count(facts):
    """Those that the last parameters come from: what was made after a checkpoint that was gone back to is not."""
    kept = []
    for fact in facts:
        if "resumed_at" in fact:
            kept = [step for step in kept if step["step"] < fact["resumed_at"]]
        elif "step" in fact:
            kept.append(fact)
    return kept


def problems(facts, steps, batch):
    """All that is wrong with a training that has ended, in words; nothing if all is well."""
    return [*_trained_again(facts), *_not_in_order(facts, steps), *_wrong_batches(facts, batch)]


def _trained_again(facts):
    """What was saved is not trained again."""
    saved = 0
    for fact in facts:
        saved = fact.get("saved", saved)
        if fact.get("resumed_at", saved) < saved or fact.get("step", saved) < saved:
            yield f"{saved} steps were saved before {fact}"


def _not_in_order(facts, steps):
    made = [fact["step"] for fact in steps_that_count(facts)]
    if made != list(range(steps)):
        wrong = next((place for place, step in enumerate(made) if step != place), len(made))
        yield f"the training has {len(made)} steps of {steps}, and they are not in order from place {wrong} on"


def _wrong_batches(facts, batch):
    for fact in steps_that_count(facts):
        if fact["samples"] != batch:
            yield f"a step did not take {batch} samples: {fact}"
