"""Data parallel PyTorch under torchrun, elastic: one process per GPU, and their number may change at any step.

    run: torchrun --standalone --nproc-per-node $COTENANT_GPUS examples/torchrun_train.py
    gpus: 1
    elastic: {min_gpus: 1, max_gpus: 2}

Over several machines each runs the command once, and is told who it is:

    run: torchrun --nnodes $COTENANT_NODES --node-rank $COTENANT_NODE_RANK --nproc-per-node $COTENANT_NODE_GPUS
         --master-addr $MASTER_ADDR --master-port $MASTER_PORT examples/torchrun_train.py

Rank 0 reports and saves, all ranks stop at the same step and restore from the same checkpoint. The global batch and the
order of the data are kept, so the losses are those of an undisturbed run, but for rounding; `--keeps per-gpu` lets the
batch and the learning rate grow with the GPUs instead. Runs on CPUs where there is no CUDA.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import distributed, nn

from cotenant import runtime
from cotenant.runtime import torch as runtime_torch


def main() -> None:
    """Train on as many ranks as torchrun has started."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds that a step takes at least")
    parser.add_argument("--keeps", choices=["global", "per-gpu"], default="global")
    parser.add_argument("--weights", default="", help="rank 0 writes the weights to this file in the end")
    parser.add_argument("--losses", default="", help="rank 0 appends 'step ranks loss' lines to this file")
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    distributed.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(1)
    inputs = torch.randn(512, 8, dtype=torch.float64)
    dataset = torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1, keepdim=True).sin())
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).double().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    with runtime.job(batch_size=32, keeps=args.keeps, lr_scaling="linear") as job:
        loader = runtime_torch.Loader(job, dataset, seed=1)
        runtime_torch.attach(job, model=model, optimizer=optimizer, loader=loader)
        parallel = nn.parallel.DistributedDataParallel(model)  # after attach: it copies the weights of rank 0 to all
        batches = loader.forever()
        for step in job.steps(args.steps):
            x, y = (part.to(device) for part in next(batches))
            loss = nn.functional.mse_loss(parallel(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mean = loss.detach() / job.ranks
            distributed.all_reduce(mean)
            job.report(loss=mean)
            if job.rank == 0 and args.losses:
                with open(args.losses, "a", encoding="utf-8") as file:
                    file.write(f"{step} {job.ranks} {mean.item()!r}\n")
            time.sleep(args.step_time)
    if distributed.get_rank() == 0 and args.weights:
        torch.save(model.state_dict(), args.weights)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
