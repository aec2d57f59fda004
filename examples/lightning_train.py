"""Lightning with the Cotenant callback; an interrupted run ends with the same weights as an undisturbed one.

python examples/lightning_train.py --steps 200 [--checkpoint-dir DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from cotenant import runtime
from cotenant.runtime import lightning as runtime_lightning
from cotenant.runtime import torch as runtime_torch


class Regression(pl.LightningModule):
    """A line through noisy points."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(8, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The squared error of one batch."""
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain gradient descent with momentum."""
        return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)


def main() -> None:
    """Train and print the digest of the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint-dir", type=Path, help="used outside Cotenant")
    parser.add_argument("--out", type=Path, help="file for the result")
    args = parser.parse_args()

    pl.seed_everything(1)
    inputs = torch.randn(512, 8)
    dataset = torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1, keepdim=True) + torch.randn(512, 1))
    module = Regression()

    with runtime.job(batch_size=32, checkpoint_dir=args.checkpoint_dir) as job:
        trainer = pl.Trainer(
            max_steps=args.steps,
            accelerator="auto",
            devices=1,
            accumulate_grad_batches=job.accumulation,
            callbacks=[runtime_lightning.callback(job)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        loader = runtime_torch.Loader(job, dataset, seed=1)
        trainer.fit(module, loader, ckpt_path=runtime_lightning.resume_path(job))

        state = b"".join(tensor.cpu().numpy().tobytes() for tensor in module.state_dict().values())
        result = {"steps": args.steps, "digest": hashlib.sha256(state).hexdigest()}
        print(json.dumps(result))
        if args.out:
            args.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
