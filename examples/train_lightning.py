"""Train with PyTorch Lightning, which finds its place in the job by itself.

holdfast run --nproc-per-node 2 examples/train_lightning.py --directory /tmp/lightning

Lightning wants to be told how many workers a machine has and how many machines there are, and checks it.
"""

import argparse
import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from holdfast import worker


class Line(lightning.LightningModule):
    """Finds the line that points are near to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        return (self.layer(x) - y).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.3)


class StopWhenAsked(lightning.Callback):
    """Ends the training after an epoch in which any worker was asked to stop."""

    def on_train_epoch_end(self, trainer: lightning.Trainer, _: lightning.LightningModule) -> None:
        asked = torch.tensor(worker.stop_requested(), device=trainer.strategy.root_device)
        trainer.should_stop = bool(trainer.strategy.reduce_boolean_decision(asked, all=False))


def points() -> TensorDataset:
    """Near the line y = 3x + 2."""
    random = torch.Generator().manual_seed(7)
    x = torch.rand(512, 1, generator=random)
    return TensorDataset(x, 3 * x + 2 + torch.randn(512, 1, generator=random) / 100)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True, help="for the checkpoint")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()

    lightning.seed_everything(7, verbose=False)
    trainer = lightning.Trainer(
        accelerator="auto",
        strategy="ddp",
        devices=worker.local_world_size(),  # this and the next make the world's size, or Lightning refuses
        num_nodes=worker.world_size() // worker.local_world_size(),
        max_epochs=options.epochs,
        callbacks=[ModelCheckpoint(options.directory, save_last=True), StopWhenAsked()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = os.path.join(options.directory, "last.ckpt")
    model = Line()
    loader = DataLoader(points(), batch_size=32 // worker.world_size(), shuffle=True)
    trainer.fit(model, loader, ckpt_path=last if os.path.exists(last) else None)
    if trainer.is_global_zero:
        weight, bias = (parameter.item() for parameter in model.parameters())
        print(f"{trainer.world_size} workers: y = {weight:.1f}x + {bias:.1f}")


if __name__ == "__main__":
    main()
