"""The cluster that a user names: a spec such as `32x8:h200`, or a YAML file with groups of nodes and quotas.

groups:
  - {nodes: 4, gpus: 8, type: h200, cpu: 96, mem: 768, partition: vcA}   # per node; mem in GiB
quotas: {vcA: 16}                                                        # GPUs a tenant may hold
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError, unknown

_GROUP_KEYS = ("nodes", "gpus", "type", "cpu", "mem", "partition")
_TOP_KEYS = ("groups", "quotas")


def load_cluster(spec: str) -> Cluster:
    """Read a spec, or the YAML file that it names."""
    if not spec.strip().lower().endswith((".yaml", ".yml")):
        return Cluster.parse(spec)
    import yaml

    path = Path(spec)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f" line {mark.line + 1}" if mark is not None else ""
        raise InputError(f"{path}{at}: broken YAML ({getattr(error, 'problem', None) or 'cannot be read'})") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: must hold 'groups:' and optionally 'quotas:'")
    _known(f"{path}", data, _TOP_KEYS)
    groups = data.get("groups")
    if not isinstance(groups, list) or not groups:
        raise InputError(f"{path}: groups: must be a list such as [{{nodes: 4, gpus: 8, type: h200}}]")
    return Cluster(
        tuple(_group(f"{path}: groups[{at}]", item) for at, item in enumerate(groups)),
        quotas=_quotas(path, data.get("quotas") or {}),
        spec=spec,
    )


def _group(where: str, item: Any) -> NodeGroup:
    if not isinstance(item, dict):
        raise InputError(f"{where}: must be a mapping such as {{nodes: 4, gpus: 8}}")
    _known(where, item, _GROUP_KEYS)
    for key in ("nodes", "gpus"):
        if key not in item:
            raise InputError(f"{where}.{key} is missing; say how many")
    return NodeGroup(
        _whole(f"{where}.nodes", item["nodes"], 1),
        _whole(f"{where}.gpus", item["gpus"], 1),
        _text(f"{where}.type", item.get("type", "gpu")),
        _amount(f"{where}.cpu", item.get("cpu", math.inf)),
        _amount(f"{where}.mem", item.get("mem", math.inf)),
        _text(f"{where}.partition", item.get("partition", "")),
    )


def _quotas(path: Path, data: Any) -> dict[str, int]:
    if not isinstance(data, dict):
        raise InputError(f"{path}: quotas: must be a mapping such as {{vcA: 16}}")
    return {str(tenant): _whole(f"{path}: quotas.{tenant}", gpus, 0) for tenant, gpus in data.items()}


def _known(where: str, data: dict[Any, Any], keys: tuple[str, ...]) -> None:
    for key in data:
        if key not in keys:
            raise InputError(f"{where}: {unknown('field', str(key), keys)}")


def _whole(where: str, value: Any, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{where} is {value!r}; it must be a whole number of at least {low}")
    return value


def _amount(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(f"{where} is {value!r}; it must be a positive number per node")
    return float(value)


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str | int):
        raise InputError(f"{where} is {value!r}; it must be a name")
    return str(value)
