"""Train with Hugging Face Accelerate, which finds its place in the job by itself.

holdfast run --nproc-per-node 2 examples/train_accelerate.py --directory /tmp/line

Nothing in it knows of holdfast but the request to stop. `Accelerator(cpu=True)` is for machines without a GPU only.
"""

import argparse
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

from holdfast import worker

SEED = 7


def line(count: int) -> TensorDataset:
    """Points near the line y = 3x + 2."""
    random = torch.Generator().manual_seed(SEED)
    x = torch.rand(count, 1, generator=random)
    return TensorDataset(x, 3 * x + 2 + torch.randn(count, 1, generator=random) / 100)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True, help="for the checkpoint")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    set_seed(SEED)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    loader = DataLoader(line(512), batch_size=32 // accelerator.num_processes, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    epochs = [path for path in _subdirectories(options.directory) if path.isdecimal()]
    first = max(map(int, epochs), default=-1) + 1
    if first:
        accelerator.load_state(os.path.join(options.directory, str(first - 1)))
    loss = torch.zeros(())
    for epoch in range(first, options.epochs):
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        if worker.stop_requested():
            accelerator.set_trigger()
        stops = accelerator.check_trigger()  # whoever was asked: all stop here
        _save(accelerator, os.path.join(options.directory, str(epoch)))
        if stops:
            break
    weight, bias = (parameter.item() for parameter in accelerator.unwrap_model(model).parameters())
    accelerator.print(f"{accelerator.num_processes} workers: y = {weight:.1f}x + {bias:.1f}")
    accelerator.end_training()


def _subdirectories(path: str) -> list[str]:
    return os.listdir(path) if os.path.isdir(path) else []


def _save(accelerator: Accelerator, path: str) -> None:
    """Saved under another name first: what has a number is whole."""
    accelerator.save_state(f"{path}.new")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        os.rename(f"{path}.new", path)


if __name__ == "__main__":
    main()
