"""A Kubernetes cluster beside a test: `cotenant.testing.kube_world` as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotenant.testing.backend_kit import PATIENCE_S, seen

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "base" / "rbac.yaml"
REAL = os.environ.get("COTENANT_KUBECONFIG", "")  # a real control plane without nodes, as `make test-kubernetes` gives


class KubeCluster:
    """Emulated, unless there is a real one. Its user has the rights of our manifests, and no others."""

    def __init__(self, folder: Path, nodes: int = 3, types: tuple[str, ...] = ()) -> None:
        asked = ["--real", REAL] if REAL else ["--rules", str(DEPLOY)]
        command = [sys.executable, "-m", "cotenant.testing.kube_world", str(folder), "--nodes", str(nodes), *asked]
        command += ["--types", *types] if types else []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.kubeconfig = REAL or str(folder / "kubeconfig")
        assert self._answer() == "ready"

    def ask(self, *words: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline() or '"it has ended"')

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)


@contextmanager
def ended(backend: Any) -> Iterator[None]:
    """Afterwards nothing of this backend's jobs is there."""
    try:
        yield
    finally:
        for one in backend.observe():
            if one.alive:
                backend.kill(one.key)
            deadline = time.monotonic() + PATIENCE_S
            while (now := seen(backend, one.key)) is not None and now.alive:
                assert time.monotonic() < deadline, now
                backend.wait_change(1.0)
            backend.forget(one.key)
            assert seen(backend, one.key) is None
        backend.close()
