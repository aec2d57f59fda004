"""The process that is Ray's driver for a service: it keeps an agent on every node and passes calls on to them.

It speaks with `link` over a socket on descriptor 0: calls come, answers and news go, and it ends when the other side is
gone. Agents outlive it.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from cotenant._version import __version__
from cotenant.backends.agent.agent import NodeAgent

NAMESPACE = "cotenant"
_LOOK_S = 0.5
_AGAIN_S = 2.0  # until an agent that failed to begin is begun anew
_SLOW_S = 5.0  # after which it is said what a new agent waits for
LEAVE_S, GONE_S = 5.0, 30.0  # for agents to clear up, and until they have ended, when they are released
_LONG_POLL_S = 20.0
_THREADS = 64


@dataclass(frozen=True, slots=True)
class RaySettings:
    """What a gateway is told at its start."""

    address: str
    label: str
    folder: str
    node: str = ""  # the address of the node to connect to, where this machine has several


class KnownAgent:
    """The agent of one node, from its creation on."""

    def __init__(self, handle: Any, trouble: str = "") -> None:
        self.handle, self.hello, self.facts = handle, handle.hello.remote(), None
        self.began_s, self.trouble, self.version = time.monotonic(), trouble, 0


class RayGateway:
    """Three threads beside those of the calls: one looks at the nodes, one waits for news of agents, one reads."""

    def __init__(self, connection: Connection, settings: RaySettings) -> None:
        self._connection, self._settings, self._speaking = connection, settings, threading.Lock()
        self._agents: dict[str, KnownAgent] = {}
        self._released = False
        self._pool = ThreadPoolExecutor(_THREADS)

    def run(self) -> None:
        """Until the service hangs up."""
        threading.Thread(target=self._begin, daemon=True).start()
        while True:
            try:
                number, op, given = self._connection.recv()
            except (EOFError, OSError):
                return
            self._pool.submit(self._answer, number, op, given)

    def _begin(self) -> None:
        try:
            self._connect()
        except BaseException as error:
            self._say("failed", 0, f"{type(error).__name__}: {error}")
            os._exit(1)
        threading.Thread(target=self._listen, daemon=True).start()
        self._look()

    def _connect(self) -> None:
        host, more = self._settings.address.rpartition(":")[0], dict[str, Any]()
        if self._settings.node:
            more["_node_ip_address"] = self._settings.node
        elif host in ("127.0.0.1", "localhost"):  # else Ray takes this machine's outside address instead
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            more["_node_ip_address"] = "127.0.0.1"
        import ray

        ray.init(
            address=self._settings.address or "auto", namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR",
            configure_logging=False, **more,
        )  # fmt: skip
        self._say("connected", 0, ray.util.get_node_ip_address())

    def _say(self, kind: str, number: int, what: Any) -> None:
        with self._speaking:
            self._connection.send((kind, number, what))

    def _answer(self, number: int, op: str, given: tuple[Any, ...]) -> None:
        try:
            self._say("answer", number, (True, getattr(self, f"op_{op}")(*given)))
        except Exception as error:
            self._say("answer", number, (False, f"{type(error).__name__}: {error}"))

    # -- nodes and their agents ------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Tell how the nodes are, again and again: who hears nothing knows that Ray does not answer."""
        import ray

        while True:
            try:
                nodes = named(ray.nodes())
                for node in nodes:
                    self.attend(node)
                table = [self.row(node) for node in nodes]
            except Exception as error:
                self._say("trouble", 0, f"{type(error).__name__}: {error}")
            else:
                self._say("table", 0, table)
            time.sleep(_LOOK_S)

    def attend(self, node: dict[str, Any]) -> None:
        """See that there is an agent on a living node, of this version."""
        import ray

        name, has = node["NodeID"], node["Resources"]
        if not node["Alive"]:
            self._agents.pop(name, None)
            return
        agent = self._agents.get(name)
        if self._released:
            return
        if agent is None:
            if has.get("CPU") or has.get("GPU"):
                self._agents[name] = KnownAgent(self.create(node))
            return
        if agent.facts is None and ray.wait([agent.hello], timeout=0)[0]:
            try:
                facts = ray.get(agent.hello)
            except Exception as error:  # it begins anew by itself, or is dead for good: then there is a new one
                agent.trouble = str(error).strip().splitlines()[-1]
                if time.monotonic() - agent.began_s > _AGAIN_S:
                    self._agents[name] = KnownAgent(self.create(node), agent.trouble)
                return
            if facts["version"] != __version__:
                ray.kill(agent.handle, no_restart=True)
                del self._agents[name]
                return
            agent.facts, agent.trouble = facts, ""
        elif agent.facts is None and time.monotonic() - agent.began_s > _SLOW_S:
            agent.trouble = agent.trouble or waits_for(node)

    def create(self, node: dict[str, Any]) -> Any:
        """The agent of a node: the one that is there, or a new one."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        gpus, life = int(node["Resources"].get("GPU", 0)), node["NodeID"][:16]
        name = node["NodeName"]
        folder = os.path.join(self._settings.folder, self._settings.label, name)
        return (
            ray.remote(NodeAgent)
            .options(
                name=f"agent-{self._settings.label}-{life}", namespace=NAMESPACE, lifetime="detached",
                get_if_exists=True, max_restarts=-1, max_task_retries=0, num_cpus=0, num_gpus=gpus,
                max_concurrency=_THREADS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote(folder, life, name, gpu_type_of(node), gpus)
        )  # fmt: skip

    def row(self, node: dict[str, Any]) -> dict[str, Any]:
        """What is told of a node."""
        agent, has = self._agents.get(node["NodeID"]), node["Resources"]
        return {
            "id": node["NodeID"], "name": node["NodeName"], "alive": node["Alive"],
            "address": node["NodeManagerAddress"],
            "gpus": int(has.get("GPU", 0)), "cpus": int(has.get("CPU", 0)), "mem_gib": has.get("memory", 0) / 2**30,
            "gpu_type": gpu_type_of(node), "facts": agent.facts if agent is not None else None,
            "trouble": agent.trouble if agent is not None else "",
        }  # fmt: skip

    def _listen(self) -> None:
        """One question to every agent at a time, which it answers when something happens on its node."""
        import ray

        asked: dict[Any, KnownAgent] = {}
        while True:
            busy = set(map(id, asked.values()))
            for agent in list(self._agents.values()):
                if agent.facts is not None and id(agent) not in busy:
                    asked[agent.handle.wait.remote(agent.version, _LONG_POLL_S)] = agent
            if not asked:
                time.sleep(_LOOK_S)
                continue
            ready = ray.wait(list(asked), timeout=_LOOK_S)[0]
            for one in ready:
                agent = asked.pop(one)
                try:
                    agent.version = ray.get(one)
                except Exception:  # it died, or its node did: which is news
                    time.sleep(0.05)
                self._say("news", 0, None)

    # -- calls -----------------------------------------------------------------------------------------------------

    def op_ask(self, requests: list[tuple[str, str, tuple[Any, ...]]], timeout_s: float) -> list[tuple[str, Any]]:
        """One act at each of several agents, at the same time: ok, input or backend; `away` who does not answer."""
        import ray

        gone = ray.exceptions.RayActorError, ray.exceptions.ActorUnschedulableError
        until, answers = time.monotonic() + timeout_s, dict[int, tuple[str, Any]]()
        while True:
            asked, again = dict[Any, int](), False
            for at, (node, act, given) in enumerate(requests):
                if answers.get(at, ("away", ""))[0] != "away":
                    continue
                agent = self._agents.get(node)
                if agent is None:  # not yet, after a start of the gateway; or its node is gone
                    answers[at], again = ("away", "there is no agent"), True
                else:
                    asked[agent.handle.do.remote(act, *given)] = at
            wait_s = max(until - time.monotonic(), 0.01)
            ready = ray.wait(list(asked), num_returns=len(asked), timeout=wait_s)[0] if asked else []
            for one, at in asked.items():
                try:
                    answers[at] = ray.get(one) if one in ready else ("away", f"no answer in {timeout_s:g} s")
                except gone as error:  # it begins anew, or its node is gone
                    answers[at], again = ("away", str(error).strip().splitlines()[0]), True
                except Exception as error:
                    answers[at] = "backend", str(error).strip().splitlines()[-1]
            if not again or time.monotonic() + 0.1 > until:
                return [answers[at] for at in range(len(requests))]
            time.sleep(0.1)

    def op_put(self, key: str, value: bytes, overwrite: bool) -> bytes:
        """Keep a value in Ray's own store, unless there is one and it is not to be replaced; the one that is there."""
        from ray.experimental import internal_kv as store

        space = self._settings.label.encode()
        store._internal_kv_put(key.encode(), value, overwrite=overwrite, namespace=space)
        found: bytes | None = store._internal_kv_get(key.encode(), namespace=space)
        return found if found is not None else value

    def op_get(self, key: str) -> bytes | None:
        """The value of a key."""
        from ray.experimental import internal_kv as store

        found: bytes | None = store._internal_kv_get(key.encode(), namespace=self._settings.label.encode())
        return found

    def op_drop(self, key: str) -> None:
        """Forget a key."""
        from ray.experimental import internal_kv as store

        store._internal_kv_del(key.encode(), namespace=self._settings.label.encode())

    def op_list(self, prefix: str) -> dict[str, bytes]:
        """All keys that begin so, with their values."""
        from ray.experimental import internal_kv as store

        space = self._settings.label.encode()
        keys = store._internal_kv_list(prefix.encode(), namespace=space)
        found = {key.decode(): store._internal_kv_get(key, namespace=space) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def op_release(self) -> int:
        """End all agents, so that Ray may give the GPUs to others; how many there were.

        Ray's call does not tell whether they have ended, and this process may end right after it. So it is repeated
        until they are seen to be dead.
        """
        import ray

        self._released = True  # nobody begins one anew
        agents = list(self._agents.values())
        ray.wait([agent.handle.do.remote("leave") for agent in agents], num_returns=len(agents), timeout=LEAVE_S)
        left, until = agents, time.monotonic() + GONE_S
        while left and time.monotonic() < until:
            for agent in left:
                ray.kill(agent.handle, no_restart=True)
            left = [agent for agent in left if not is_dead(agent.handle)]
        if left:
            raise TimeoutError(f"{len(left)} of {len(agents)} agents have not ended within {GONE_S:g} s")
        return len(agents)


def is_dead(handle: Any) -> bool:
    """Whether an actor has ended for good."""
    import ray

    try:
        ray.get(handle.hello.remote(), timeout=1.0)
    except ray.exceptions.ActorDiedError:
        return True
    except ray.exceptions.RayError:  # it is about to end, or to begin anew
        time.sleep(0.05)
    return False


def waits_for(node: dict[str, Any]) -> str:
    """What keeps the agent of a node from beginning, as far as Ray says."""
    from ray._private.state import available_resources_per_node

    gpus = int(node["Resources"].get("GPU", 0))
    free = available_resources_per_node().get(node["NodeID"], {}).get("GPU", 0)
    if free < gpus:
        return f"{gpus - int(free)} of its {gpus} GPUs are in use by others"
    return f"its agent has not begun after {_SLOW_S:g} s"


def named(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With names that become folders, each of one living node: the administrator's, or the address."""
    given = [re.sub(r"[^A-Za-z0-9._-]", "_", node["NodeName"] or node["NodeManagerAddress"]) for node in nodes]
    alive = Counter(name for name, node in zip(given, nodes, strict=True) if node["Alive"])
    return [
        {**node, "NodeName": name if alive[name] <= 1 else f"{name}-{node['NodeID'][:8]}"}
        for name, node in zip(given, nodes, strict=True)
    ]


def gpu_type_of(node: dict[str, Any]) -> str:
    """A label `gpu-type`, what Ray found, or just `gpu`."""
    labels = node.get("Labels") or {}
    found = [name.partition(":")[2] for name in node["Resources"] if name.startswith("accelerator_type:")]
    return str(labels.get("gpu-type") or labels.get("ray.io/accelerator-type") or next(iter(found), "gpu")).lower()


def main() -> None:
    """As `link` starts it."""
    connection = Connection(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    settings: RaySettings = connection.recv()
    RayGateway(connection, settings).run()
    sys.stdout.flush()
    os._exit(0)  # threads that wait for Ray would not end


if __name__ == "__main__":
    main()
