"""PyTorch on CPU or GPU; an interrupted run ends with the same weights as an undisturbed one.

    python examples/torch_train.py --steps 200 [--checkpoint-dir DIR]

Model, optimizer, random numbers (there is dropout) and the position in the data are saved; batch size, accumulation,
workers and learning rate (by `attach`) follow the scheduler from step to step.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import torch
from torch import nn

from cotenant import runtime
from cotenant.runtime import torch as runtime_torch

LEARNING_RATE = 0.05


def main() -> None:
    """Train and print the digest of the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint-dir", type=Path, help="used outside Cotenant")
    parser.add_argument("--out", type=Path, help="file for the result")
    args = parser.parse_args()

    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = torch.randn(512, 8)
    dataset = torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1, keepdim=True).sin())
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)

    with runtime.job(batch_size=32, checkpoint_dir=args.checkpoint_dir) as job:
        loader = runtime_torch.Loader(job, dataset, seed=1)
        runtime_torch.attach(job, model=model, optimizer=optimizer, loader=loader)
        batches = loader.forever()
        for _ in job.steps(args.steps):
            for _ in range(job.accumulation):
                x, y = (part.to(device) for part in next(batches))
                loss = nn.functional.mse_loss(model(x), y)
                (loss / job.accumulation).backward()
            optimizer.step()
            optimizer.zero_grad()
            job.report(loss=loss)

        result = {"steps": args.steps, "digest": digest(model)}
        print(json.dumps(result))
        if args.out:
            args.out.write_text(json.dumps(result) + "\n")


def digest(model: nn.Module) -> str:
    """A fingerprint of every bit of the weights."""
    tensors = [tensor.detach().cpu().numpy().tobytes() for tensor in model.state_dict().values()]
    return hashlib.sha256(b"".join(tensors)).hexdigest()


if __name__ == "__main__":
    main()
