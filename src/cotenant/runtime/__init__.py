"""The side of Cotenant that lives inside a user's job. Standard library only; this folder works alone.

    from cotenant import runtime

    with runtime.job(batch_size=32) as job:
        job.save(lambda path: model.write(path / "model.bin"))
        job.restore(lambda path: model.read(path / "model.bin"))
        for step in job.steps(1000):
            loss = model.train(job.batch_size)
            job.report(loss=loss)

Stages of a step that keep the storage, the CPU, the GPU or the network busy are marked with `job.stage("load")`,
`"preprocess"`, `"compute"` and `"synchronise"`: jobs that share GPUs then take turns at them.

Outside Cotenant the same script runs unchanged: steps start at 0, nobody asks it to stop, and checkpoints are
written only where a directory is named. What the scheduler says wins over what the script says.

Environment, set by the service for each attempt:

    COTENANT_ADDRESS                where the service listens, `unix:/path` or `tcp:host:port`; absent means "outside
                                    Cotenant", unless COTENANT_SOCKET, its older form, names a unix socket
    COTENANT_JOB_TOKEN              this job's own short-lived token
    COTENANT_JOB_ID, COTENANT_ATTEMPT, COTENANT_TENANT
    COTENANT_CHECKPOINT_DIR         where checkpoints live; the same for all attempts of a job
    COTENANT_CHECKPOINT_INTERVAL_S  seconds between checkpoints (0: after every step)
    COTENANT_GPU_MEM_GIB            memory of each GPU that this job may use, where the job file names it (gpu_mem)
    COTENANT_GPU_MEM_PEAK_GIB       all that it needs at its peak, where it can do with less (gpu_mem_min) and may be
                                    granted that (`serve --oversubscribe`); what it is granted changes while it runs
    COTENANT_TARGET_MS              latency that an inference service is to keep, by which `Requests` counts
    COTENANT_SETTINGS               first settings as a JSON object, as in the `set` message
    COTENANT_HOLD                   of a process that is started ahead of its GPUs: where it waits for them, `job` (in
                                    `runtime.job()`, before it uses any) or `steps` (before its first step)
    COTENANT_GPUS                   GPUs of this attempt, for command lines such as `torchrun --nproc-per-node`
    COTENANT_GPUS_ASKED             GPUs that the job was submitted with; against them learning rates are scaled
    COTENANT_BATCH_MIN, _MAX        limits of the global batch, where the job file names them
    COTENANT_NODES, _NODE_RANK      in a gang over several machines: how many, and which one this is; COTENANT_NODE_GPUS
                                    are its GPUs, COTENANT_FIRST_GPU those of the ranks before it, and MASTER_ADDR and
                                    MASTER_PORT where the first one is met
    RANK, WORLD_SIZE                read, not set (`torchrun` does): a process of another rank than 0 follows that one,
                                    and neither saves nor reports

Exit codes: EXIT_PREEMPTED (75), stopped on request with its work saved, start it again; EXIT_TERMINATED (143), ended
by SIGTERM without a way to save. A job that the scheduler asks to stop and that cannot save says so and goes on.
"""

from __future__ import annotations

from ._checkpoint import CheckpointStore
from ._job import EXIT_PREEMPTED, EXIT_TERMINATED, Job
from ._open import job
from ._requests import Requests
from .protocol import VERSION, Settings

__all__ = ["EXIT_PREEMPTED", "EXIT_TERMINATED", "VERSION", "CheckpointStore", "Job", "Requests", "Settings", "job"]
