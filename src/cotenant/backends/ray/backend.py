"""The backend of `serve --backend ray`: agents that Ray holds as detached actors (`backends.agent`)."""

from __future__ import annotations

import hashlib
import socket
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from cotenant.backends.agent import AgentBackend
from cotenant.backends.base import BackendError, check_key
from cotenant.backends.ray.gateway import GONE_S, LEAVE_S, RaySettings
from cotenant.backends.ray.link import RayLink
from cotenant.core.errors import InputError
from cotenant.core.spec import Value

_START_S, _SETTLE_S = 90.0, 20.0  # until the first agent is there, and then for the others


class RayBackend(AgentBackend):
    """A handle on the agents of one service; `link` may be shared by several handles, of which one owns it."""

    defaults: ClassVar[dict[str, Value]] = {
        "address": "", "name": "", "folder": "", "shared": "", "listen": "", "node": "",
    }  # fmt: skip

    def __init__(self, link: RayLink, shared: Path, listen: str = "", owns_link: bool = False) -> None:
        super().__init__(link, shared, listen, owns_link)
        self._ray = link

    @classmethod
    def open(
        cls, home: Path, *, address: str = "", name: str = "", folder: str = "", shared: str = "", listen: str = "",
        node: str = "",
    ) -> RayBackend:  # fmt: skip
        """As `serve --backend ray:address=10.0.0.1:6379,shared=/nfs/cotenant` asks for it."""
        if find_spec("ray") is None:
            raise InputError("backend 'ray' needs Ray: pip install 'cotenant[ray]'")
        if listen and not listen.startswith("tcp:"):
            raise InputError(
                f"backend 'ray': listen={listen}: write tcp:host:port, an address that all nodes can reach"
            )
        own = hashlib.sha256(f"{socket.gethostname()}:{home.resolve()}".encode()).hexdigest()[:12]
        label = check_key(name) if name else own
        link = RayLink(RaySettings(address, label, folder or f"{tempfile.gettempdir()}/cotenant-ray", node))
        ready = link.await_nodes(lambda table: any(row["facts"] for row in table), _START_S)
        try:
            link.nodes()
            if not ready:
                raise BackendError(
                    f"Ray at {address or 'its own address'}: no node with cores or GPUs {_why(link.table)}"
                )
            link.await_nodes(_settled, _SETTLE_S)
            return cls(link, Path(shared) if shared else home, listen, owns_link=True)
        except BaseException:
            link.close()
            raise

    def release(self) -> int:
        """End the agents of nodes, so that Ray may give their GPUs to others; refused while there are jobs."""
        if found := self.observe():
            raise BackendError(f"there are still {len(found)} jobs, {found[0].key} for one: end them first")
        return int(self._ray.call("release", timeout_s=LEAVE_S + GONE_S))


def _settled(table: list[dict[str, Any]]) -> bool:
    """Whether every living node has its agent."""
    return all(row["facts"] is not None or not (row["cpus"] or row["gpus"]) for row in table if row["alive"])


def _why(table: list[dict[str, Any]]) -> str:
    found = [f"{row['name']}: {row['trouble']}" for row in table if row["trouble"]]
    return f"has an agent ({'; '.join(found)})" if found else "has an agent yet"
