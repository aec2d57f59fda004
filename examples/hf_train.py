"""Hugging Face Trainer with the Cotenant callback, on a tiny model that needs no download.

python examples/hf_train.py --steps 100 --output-dir /tmp/hf
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from cotenant import runtime
from cotenant.runtime import huggingface as runtime_hf


class Regression(nn.Module):
    """A line through noisy points, in the shape the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Prediction and squared error."""
        predicted = self.model(x)
        return {"loss": nn.functional.mse_loss(predicted, labels), "logits": predicted}


def main() -> None:
    """Train and print the digest of the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output-dir", type=Path, help="checkpoints of the Trainer; default: the job's directory")
    parser.add_argument("--out", type=Path, help="file for the result")
    args = parser.parse_args()
    output_dir = args.output_dir or Path(os.environ.get("COTENANT_CHECKPOINT_DIR", "hf_output"))

    torch.manual_seed(1)
    inputs = torch.randn(512, 8)
    targets = inputs.sum(dim=1, keepdim=True) + torch.randn(512, 1)
    dataset: Any = [{"x": x, "labels": y} for x, y in zip(inputs, targets, strict=True)]

    with runtime.job(batch_size=16) as job:
        model = Regression()
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=str(output_dir),
                max_steps=args.steps,
                per_device_train_batch_size=job.batch_size,
                gradient_accumulation_steps=job.accumulation,
                dataloader_num_workers=job.workers,
                learning_rate=0.01 * job.learning_rate_scale,
                logging_steps=10,
                save_strategy="no",
                save_total_limit=2,
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=dataset,
            callbacks=[runtime_hf.callback(job)],
        )
        trainer.train(resume_from_checkpoint=runtime_hf.resume_path(job, output_dir))

        state = b"".join(tensor.cpu().numpy().tobytes() for tensor in model.state_dict().values())
        result = {"steps": args.steps, "digest": hashlib.sha256(state).hexdigest()}
        print(json.dumps(result))
        if args.out:
            args.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
