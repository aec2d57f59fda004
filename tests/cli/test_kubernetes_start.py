"""`docs/kubernetes.md`, its quick start typed into a shell, against an emulated cluster of two nodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "backends"))
from kube_cluster import KubeCluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md"
_BLOCK = re.compile(r"^```bash\n(.*?)^```\n```text\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_quick_start(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "cotenant").write_text(f"#!{sys.executable}\nfrom cotenant.cli.main import main\nmain()\n")
    (tools / "cotenant").chmod(0o755)
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    typed = "\n".join(f"echo block {number}\n{text}" for number, (text, _) in enumerate(blocks))
    typed = typed.replace("--port 8470", "--port 0").replace("cotenant serve", "cotenant serve --forecast-every 0")
    cluster = KubeCluster(tmp_path / "kube", nodes=2, types=("A100", "A100"))
    env = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": cluster.kubeconfig, "COLUMNS": "200"}
    env["PATH"] = f"{tools}:{env['PATH']}"
    try:
        done = subprocess.run(["bash", "-c", typed + "\nwait"], env=env, cwd=tmp_path, capture_output=True, timeout=150)
        said = done.stdout.decode()
        for number, (_, promised) in enumerate(blocks):
            text = said.partition(f"block {number}\n")[2].partition(f"block {number + 1}\n")[0]
            for line in promised.splitlines():
                pattern = ".*".join(re.escape(part) for part in line.split("..."))
                assert re.search(rf"^\s*{pattern}\s*$", text, re.MULTILINE), (line, said, done.stderr.decode())
        assert len(blocks) == 3
        assert cluster.ask("left") == []
    finally:
        cluster.close()
