"""Two services, one journal on PostgreSQL: when the leader dies the other goes on, and clients find it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

sys.path += [str(Path(__file__).parents[1] / part) for part in ("journal", "backends")]
from journal_postgres import PostgresServer, find_binaries
from kube_cluster import KubeCluster

from cotenant.client import Client

pytestmark = pytest.mark.slow

TAKEOVER_S = 10.0
PATIENCE_S = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Served:
    """`cotenant serve --standby` as a process."""

    def __init__(self, home: Path, db: str, backend: str, env: dict[str, str]) -> None:
        self.home, port = home, free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            sys.executable, "-c", "from cotenant.cli.main import main; main()", "serve", "--standby", "--db", db,
            "--backend", backend, "--home", str(home),
            "--port", str(port), "--socket", "none", "--forecast-every", "0", "--grace", "2",
        ]  # fmt: skip
        self.log = home.with_suffix(f".{port}.log")
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **env})

    def ready(self) -> bool:
        """Whether this very one leads and serves."""
        assert self.process.poll() is None, self.log.read_text()
        return asked(f"{self.url}/readyz")[0] == 200

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def asked(url: str) -> tuple[int, str]:
    """The status, and where one is sent on to."""
    try:
        answer = httpx.get(url, follow_redirects=False, trust_env=False)
    except httpx.TransportError:
        return 0, ""
    return answer.status_code, answer.headers.get("Location", "")


def expect(happens: object, patience_s: float = PATIENCE_S) -> float:
    began_s = time.monotonic()
    while not happens():  # type: ignore[operator]
        assert time.monotonic() - began_s < patience_s
        time.sleep(0.05)
    return time.monotonic() - began_s


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_the_standby_takes_over(tmp_path: Path, stack: ExitStack) -> None:
    """The leader is killed: within 10 s the other one serves; no job is lost, none runs twice."""
    db = stack.enter_context(PostgresServer(find_binaries())).new_schema()
    cluster = KubeCluster(tmp_path / "kube", nodes=1)
    stack.callback(cluster.close)
    backend, env = "kubernetes:image=none,lease=cotenant", {"KUBECONFIG": cluster.kubeconfig}
    first = Served(tmp_path / "first", db, backend, env)
    stack.callback(first.end)
    expect(first.ready)
    second = Served(tmp_path / "second", db, backend, env)
    stack.callback(second.end)
    secret = (first.home / "token").read_text().strip()
    client = stack.enter_context(Client(f"{second.url},{first.url}", secret))
    seen = tmp_path / "seen"
    script = f"echo $COTENANT_KEY >> {seen}; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo finished"
    (held,), (waits,) = client.submit([{"run": script, "gpus": 4}, {"run": f"echo after >> {seen}", "gpus": 4}])
    expect(lambda: client.job(held).state == "running")
    expect(lambda: asked(f"{second.url}/v1/jobs") == (307, f"{first.url}/v1/jobs"))

    first.process.send_signal(signal.SIGKILL)
    took_s = expect(second.ready)
    print(f"another one leads after {took_s:.1f} s")
    assert took_s < TAKEOVER_S
    (tmp_path / "go").touch()
    (more,) = client.submit([{"run": "exit 3", "gpus": 1}])[0]
    ends = {info.id: info for info in client.wait([held, waits, more], PATIENCE_S)}
    assert [str(ends[job].state) for job in (held, waits, more)] == ["succeeded", "succeeded", "failed"]
    assert seen.read_text().split() == [f"{held}-1", "after"]
    assert b"".join(client.output(held)) == b"finished\n"
    expect(lambda: cluster.ask("left") == [])
