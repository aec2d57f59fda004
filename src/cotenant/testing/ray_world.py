"""A real Ray cluster on loopback for tests: one process that starts it, and does to it what it is told.

    python -m cotenant.testing.ray_world NODES GPUS TYPE,TYPE ADDRESS

Then lines on stdin: kill NAME | start NAME | stop | cont

`stop` and `cont` are for Ray's control plane. It answers each line, and all of it ends with its stdin.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

QUICK = {
    "health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4,
    "health_check_timeout_ms": 1500,
}  # fmt: skip


class RayWorld:
    """The cluster, as a test sees it: `nodes` nodes n0, n1, ... of so many GPUs; types take turns."""

    def __init__(
        self, nodes: int, gpus: int, types: Sequence[str] = ("a100", "v100"), address: str = "127.0.0.1"
    ) -> None:
        self.nodes = nodes
        env = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        argv = [sys.executable, "-m", "cotenant.testing.ray_world", str(nodes), str(gpus), ",".join(types), address]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        self.address = str(self._answer()["address"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise AssertionError("the Ray cluster has ended")

    def do(self, *words: str) -> dict[str, Any]:
        """One line, and the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End all of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(60) == 0


def main(nodes: int, gpus: int, types: Sequence[str], address: str) -> None:
    """In a process of its own."""
    from ray.cluster_utils import Cluster

    every = {"node_ip_address": address, "object_store_memory": 80 << 20}
    head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False, "_system_config": QUICK, **every}
    cluster = patient(lambda: Cluster(initialize_head=True, head_node_args=head))

    def start(name: str, wait: bool) -> Any:
        kind = {"gpu-type": types[int(name[1:]) % len(types)]}
        more = {"num_cpus": 4, "num_gpus": gpus, "node_name": name, "labels": kind, **every}
        return patient(lambda: cluster.add_node(wait=wait, **more))

    running = {f"n{number}": start(f"n{number}", wait=False) for number in range(nodes)}
    cluster.wait_for_nodes()
    (control,) = [info.process.pid for info in cluster.head_node.all_processes["gcs_server"]]
    print(json.dumps({"address": cluster.address}), flush=True)
    for line in sys.stdin:
        verb, *names = line.split()
        if verb == "kill":
            cluster.remove_node(running.pop(names[0]), allow_graceful=False)
        elif verb == "start":
            running[names[0]] = start(names[0], wait=True)
        else:
            os.kill(control, {"stop": signal.SIGSTOP, "cont": signal.SIGCONT}[verb])
        print(json.dumps({"done": line.strip()}), flush=True)
    cluster.shutdown()


def patient(act: Callable[[], Any]) -> Any:
    """Ray gives a node half a minute to start, which is too little on a machine that does much else."""
    for _ in range(2):
        try:
            return act()
        except Exception as error:
            sys.stderr.write(f"Ray: {error}; once more\n")
    return act()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","), sys.argv[4])
