"""A launch as pods: one per machine, each with the node that it is meant for and a label by which it is found.

Every pod has two containers. The job runs in `main`, whose log is its stdout; the other one prints what the job writes
to stderr, through a pipe in a folder that both see: the API has one log per container and does not tell streams apart.
A finalizer keeps the pod, and with it how it ended, until the service has written that down.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.gangs import Rank, ranks
from cotenant.backends.kubernetes.client import Body
from cotenant.core.errors import InputError

PREFIX = "cotenant.io"
MARK, GANG = f"{PREFIX}/mark", f"{PREFIX}/gang"
KEY, RANK, RANKS, NODE = f"{PREFIX}/key", f"{PREFIX}/rank", f"{PREFIX}/ranks", f"{PREFIX}/node"
FACTS, TOLD, FOREIGN = f"{PREFIX}/facts", f"{PREFIX}/told", f"{PREFIX}/foreign"
FINALIZER = f"{PREFIX}/until-journaled"
DEDICATED = f"{PREFIX}/dedicated"  # a taint that keeps others away from our nodes
MAIN, ERRORS = "main", "stderr"
CLAIM_AT = "/cotenant"
_PIPES = "/run/cotenant"
_KUBELET_S = 30  # beyond the grace that the service counts itself: Kubernetes ends what nobody else does
_LATE_S = 60  # the same for the longest run

# The first process of the container: it starts the job in a process group of its own, hands SIGTERM on to it, and ends
# as the job does. It listens from the start, and waits until the job would hear: the kernel drops signals to a first
# process that does not listen, a shell forgets those that come while it forks, and the kubelet sends one only. Its own
# stderr is closed afterwards, or bash would tell there of jobs that are killed.
_RUN = r"""
up= told= again=1
trap 'told=1; again=1; [ -z "$up" ] || kill -TERM -- -$job' TERM
[ -z "$COTENANT_PIPE" ] || { mkfifo "$COTENANT_PIPE" 2>/dev/null; exec 2>"$COTENANT_PIPE"; }
[ -z "$COTENANT_CHECKPOINT_DIR" ] || mkdir -p "$COTENANT_CHECKPOINT_DIR"
setup=$1 grace=$2; shift 2
exec 3<> <(:)
set -m
(
  trap - TERM
  set +m
  echo >&3
  exec 3>&-
  [ -z "$setup" ] || bash -c "$setup" || exit
  if ! command -v -- "$1" >/dev/null; then
    echo "$1: No such file or directory" | tee /dev/termination-log >&2
    exit 127
  fi
  unset COTENANT_PIPE
  exec "$@"
) &
job=$!
exec 2>/dev/null
read -ru 3
exec 3>&-
up=1
[ -z "$told" ] || kill -TERM -- -$job
while [ -n "$again" ]; do
  again=
  wait $job
  ended=$?
done
while [ -n "$told" ] && [ $((grace -= 1)) -ge 0 ] && kill -0 -- -$job; do sleep 0.1; done
exit $ended
"""
_READ = 'mkfifo "$COTENANT_PIPE" 2>/dev/null; trap "" TERM; exec cat "$COTENANT_PIPE"'


@dataclass(frozen=True, slots=True)
class PodStyle:
    """What the pods of a service have in common.

    `gpu`: the name of the device, which may be a shared one (`nvidia.com/gpu.shared`). `exact`: jobs are told which
    GPUs they use, and the device is not asked for. `claim`: a persistent volume claim, seen by all pods at `/cotenant`;
    `mounts`: folders of the nodes that they see as they are.
    """

    namespace: str = "default"
    mark: str = "cotenant"
    image: str = ""
    gpu: str = "nvidia.com/gpu"
    exact: bool = False
    scheduler: str = "cotenant"
    runtime_class: str = ""
    claim: str = ""
    mounts: tuple[str, ...] = ()
    announce: str = ""

    def gang(self, key: str) -> str:
        """A name for a key that Kubernetes takes; the same for everybody, so that one key is there at most once."""
        slug = re.sub("[^a-z0-9]+", "-", key.lower()).strip("-")[:40]
        return f"ct-{slug}-{hashlib.sha256(f'{self.mark}/{key}'.encode()).hexdigest()[:10]}"

    def pods(self, spec: LaunchSpec, nodes: Mapping[str, NodeInfo], elsewhere: str) -> list[Body]:
        """All pods of a launch, by rank. One without GPUs goes to the node `elsewhere`."""
        if not (spec.image or self.image):
            raise InputError(f"job {spec.key}: no image: give `image` in the job, or --backend kubernetes:image=NAME")
        return [self._pod(spec, rank, elsewhere) for rank in ranks(spec, nodes)]

    def _pod(self, spec: LaunchSpec, rank: Rank, elsewhere: str) -> Body:
        node = rank.gpus[0][0] if rank.gpus else elsewhere
        gang = self.gang(spec.key)
        notes = {
            KEY: spec.key, RANK: str(rank.rank), RANKS: str(rank.ranks), NODE: node,
            FACTS: json.dumps(_facts(spec)), "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        }  # fmt: skip
        labels = {"app.kubernetes.io/managed-by": "cotenant", MARK: self.mark, GANG: gang}
        meta = {"name": f"{gang}-{rank.rank}", "labels": labels, "annotations": notes, "finalizers": [FINALIZER]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": self._pod_spec(spec, rank)}

    def mark_of(self, spec: LaunchSpec, node: str) -> Body:
        """What a pod that somebody else has made gets, so that it is known as the launch of a key."""
        notes = {KEY: spec.key, RANK: "0", RANKS: "1", NODE: node, FOREIGN: spec.foreign}
        return {
            "labels": {MARK: self.mark, GANG: self.gang(spec.key)},
            "annotations": {**notes, FACTS: json.dumps({**_facts(spec), "run": spec.script})},
        }  # fmt: skip

    def _pod_spec(self, spec: LaunchSpec, rank: Rank) -> Body:
        volumes, mounts = self._volumes()
        env = self._environment(spec, rank)
        image = {"image": spec.image or self.image, "securityContext": {"allowPrivilegeEscalation": False}}
        pipes = {"name": "cotenant-pipes", "mountPath": _PIPES}
        pipe = {"COTENANT_PIPE": f"{_PIPES}/{ERRORS}"}
        main: Body = {
            "name": MAIN, **image, "command": ["bash", "-c", _escaped(_RUN), "cotenant"],
            "args": [_escaped(word) for word in (spec.setup, str(math.ceil(spec.grace_s * 10)), *_command(spec))],
            "env": _entries(env if spec.tty else env | pipe), "volumeMounts": [*mounts, pipes],
            "resources": self._resources(spec, rank),
        }  # fmt: skip
        if spec.workdir:
            main["workingDir"] = spec.workdir
        reader = {
            "name": ERRORS, **image, "command": ["bash", "-c", _escaped(_READ)], "env": _entries(pipe),
            "volumeMounts": [pipes], "resources": {"requests": {"cpu": "0", "memory": "0"}},
        }  # fmt: skip
        found: Body = {
            "schedulerName": self.scheduler, "restartPolicy": "Never", "enableServiceLinks": False,
            "automountServiceAccountToken": False, "containers": [main, reader],
            "terminationGracePeriodSeconds": math.ceil(spec.grace_s) + _KUBELET_S,
            "tolerations": [{"key": key, "operator": "Exists"} for key in TOLERATED],
            "volumes": [*volumes, {"name": "cotenant-pipes", "emptyDir": {}}],
        }  # fmt: skip
        if spec.tty:
            main["tty"] = True
            found["containers"] = [main]
        if spec.max_runtime_s:
            found["activeDeadlineSeconds"] = math.ceil(spec.max_runtime_s + spec.grace_s) + _LATE_S
        if rank.ranks > 1:  # they meet at the address of a node
            found |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
        if self.runtime_class:
            found["runtimeClassName"] = self.runtime_class
        return found

    def _environment(self, spec: LaunchSpec, rank: Rank) -> dict[str, str]:
        home: dict[str, str] = {}
        if spec.calls_home is not None:
            home = spec.calls_home.environment() | ({"COTENANT_ADDRESS": self.announce} if self.announce else {})
        own = {"COTENANT_KEY": spec.key, "COTENANT_JOB": spec.job}
        if self.exact:
            indexes = ",".join(str(index) for _, some in rank.gpus for index in some)
            own |= {"CUDA_VISIBLE_DEVICES": indexes, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
            own["NVIDIA_VISIBLE_DEVICES"] = "all" if indexes else "void"
        return {**spec.env, **home, **own, **rank.environment()}

    def _resources(self, spec: LaunchSpec, rank: Rank) -> Body:
        """Limits as the service deals them out. Nothing but GPUs is asked for: cores and memory are its business."""
        limits: dict[str, str] = {}
        cores = spec.cpu_share if spec.cpu_share is not None else len(spec.cpus) if spec.cpus else None
        if cores is not None and math.isfinite(cores):
            limits["cpu"] = f"{max(1, round(cores * 1000))}m"
        if spec.mem_gib is not None and math.isfinite(spec.mem_gib):
            limits["memory"] = str(int(spec.mem_gib * 2**30))
        gpus = sum(len(indexes) for _, indexes in rank.gpus)
        asked = {self.gpu: str(gpus)} if gpus and not self.exact else {}
        return {"limits": {**limits, **asked}, "requests": {"cpu": "0", "memory": "0", **asked}}

    def _volumes(self) -> tuple[list[Body], list[Body]]:
        volumes: list[Body] = []
        mounts: list[Body] = []
        if self.claim:
            volumes.append({"name": "cotenant-claim", "persistentVolumeClaim": {"claimName": self.claim}})
            mounts.append({"name": "cotenant-claim", "mountPath": CLAIM_AT})
        for number, path in enumerate(self.mounts):
            volumes.append({"name": f"host-{number}", "hostPath": {"path": path}})
            mounts.append({"name": f"host-{number}", "mountPath": path})
        return volumes, mounts

    def shared_folder(self) -> str:
        """What pods of all nodes see; '' where there is nothing."""
        return CLAIM_AT if self.claim else self.mounts[0] if self.mounts else ""


TOLERATED = (DEDICATED, "nvidia.com/gpu", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _escaped(text: str) -> str:
    """As it is to arrive: the kubelet reads `$(NAME)` as a variable, and `$$` as a dollar."""
    return text.replace("$", "$$")


def _entries(env: Mapping[str, str]) -> list[Body]:
    return [{"name": name, "value": _escaped(value)} for name, value in env.items()]


def _command(spec: LaunchSpec) -> tuple[str, ...]:
    return spec.argv if spec.argv is not None else ("bash", "-c", spec.script)


def _facts(spec: LaunchSpec) -> dict[str, Any]:
    """What a later handle has to know of a launch. Its environment is the pod's."""
    return {
        "job": spec.job, "tenant": spec.tenant, "gpus": spec.gpus, "shell": spec.argv is None,
        "grace_s": spec.grace_s, "max_runtime_s": spec.max_runtime_s,
        "limits": [max(1, int(mib * 2**20)) for mib in (spec.stdout_limit_mib, spec.stderr_limit_mib)],
    }  # fmt: skip


def facts(pod: Body) -> dict[str, Any]:
    """What `_facts` wrote."""
    found: dict[str, Any] = json.loads(pod["metadata"]["annotations"][FACTS])
    return found


def is_foreign(pod: Body) -> bool:
    """Whether somebody else has made it."""
    return FOREIGN in (pod["metadata"].get("annotations") or {})


def main_of(pod: Body) -> str:
    """The container that is the job."""
    return str(pod["spec"]["containers"][0]["name"]) if is_foreign(pod) else MAIN


def slots(pod: Body) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The GPUs of the launch."""
    return tuple((name, tuple(indexes)) for name, indexes in facts(pod)["gpus"])


def launched(pod: Body) -> LaunchSpec:
    """The launch of a gang's first pod, as far as it is needed to go on with it."""
    meta, main, kept = pod["metadata"], pod["spec"]["containers"][0], facts(pod)
    if is_foreign(pod):
        notes = meta["annotations"]
        return LaunchSpec(
            notes[KEY], kept["job"], script=kept["run"], gpus=slots(pod), tenant=kept["tenant"], foreign=notes[FOREIGN]
        )
    setup, _, *command = (word.replace("$$", "$") for word in main["args"])
    return LaunchSpec(
        meta["annotations"][KEY], kept["job"], main.get("workingDir", ""), None if kept["shell"] else tuple(command),
        command[-1] if kept["shell"] else "", setup,
        {one["name"]: one["value"].replace("$$", "$") for one in main["env"]}, slots(pod),
        grace_s=kept["grace_s"], max_runtime_s=kept["max_runtime_s"], tenant=kept["tenant"], image=main["image"],
    )  # fmt: skip
