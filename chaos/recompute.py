"""The steps of a training once more, in one process and without a fault: prints, as JSON, how far the two are apart.

Its arguments are the directory of the training and the example. A step's samples, and what dropout does to them, depend
on the step, the world's size and the rank alone. So what all ranks of a world computed can be computed one by one.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import torch

from chaos.world import support


def main() -> None:
    directory, example = Path(sys.argv[1]), sys.argv[2]
    facts = [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]
    worst, network = recomputed(runpy.run_path(example), support("training_history").steps_that_count(facts))
    saved = torch.load(directory / "checkpoint.pt")
    apart = max(float((saved["network"][name] - value).abs().max()) for name, value in network.items())
    print(json.dumps({"loss": worst, "parameters": apart, "next_step": saved["next_step"]}))


def recomputed(example: dict[str, Any], steps: list[dict[str, Any]]) -> tuple[float, dict[str, torch.Tensor]]:
    """How far the loss of a step is from what was noted, at most, and the parameters at the end."""
    seed, batch = example["SEED"], example["BATCH"]
    points, labels = example["spirals"]()
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1)]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    worst = 0.0
    for fact in steps:
        step, world, total = fact["step"], fact["world"], 0.0
        optimizer.zero_grad()
        for rank in range(world):
            torch.manual_seed(seed + step * world + rank)
            mine = example["samples_of"](step)[rank::world]
            logits = network(points[mine]).squeeze(1)
            loss = example["binary_cross_entropy_with_logits"](logits, labels[mine], reduction="sum") / batch
            loss.backward()
            total += loss.item()
        optimizer.step()
        worst = max(worst, abs(total - fact["loss"]))
    return worst, network.state_dict()


if __name__ == "__main__":
    main()
