"""The objects of an emulated Kubernetes: versions, conflicts, deletion in two steps, and a history for watches.

As the API server does it: every change has a number (`resourceVersion`) that is one of the whole store; whoever writes
with an old one gets 409; whoever watches from a number that history no longer has gets 410. A pod that is deleted
stays, marked, until its kubelet says that it is gone, and any object until its finalizers are taken off.
"""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

KubeObject = dict[str, Any]
Change = tuple[int, str, str, KubeObject]  # number, ADDED | MODIFIED | DELETED, kind, the object then
_TERMINAL = ("Succeeded", "Failed")


class ApiRefusal(Exception):
    """What the API server answers instead: a status code, a reason, a line."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason

    def body(self) -> KubeObject:
        """As the API server writes it."""
        told = {"status": "Failure", "code": self.code, "reason": self.reason, "message": str(self)}
        return {"kind": "Status", "apiVersion": "v1", **told}


@dataclass(slots=True)
class KubeStore:
    """All kinds of objects by (kind, namespace, name). Thread-safe; `changed` is notified at every change."""

    objects: dict[tuple[str, str, str], KubeObject] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    version: int = 1
    compacted: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def get(self, kind: str, namespace: str, name: str) -> KubeObject:
        """One object, or 404."""
        with self.changed:
            return copy.deepcopy(self._one(kind, namespace, name))

    def _one(self, kind: str, namespace: str, name: str) -> KubeObject:
        found = self.objects.get((kind, namespace, name))
        if found is None:
            raise ApiRefusal(404, "NotFound", f'{kind} "{name}" not found')
        return found

    def list(self, kind: str, namespace: str, wanted: Callable[[KubeObject], bool]) -> tuple[int, list[KubeObject]]:
        """The number of now, and the objects of a kind; of all namespaces where none is named."""
        with self.changed:
            places = sorted(key for key in self.objects if key[0] == kind and namespace in ("", key[1]))
            found = [copy.deepcopy(self.objects[place]) for place in places if wanted(self.objects[place])]
            return self.version, found

    def create(self, kind: str, namespace: str, body: KubeObject) -> KubeObject:
        """A new object, or 409 where its name is taken."""
        with self.changed:
            meta = body.setdefault("metadata", {})
            name = meta.get("name") or meta.get("generateName", "") + uuid.uuid4().hex[:5]
            if (kind, namespace, name) in self.objects:
                raise ApiRefusal(409, "AlreadyExists", f'{kind} "{name}" already exists')
            meta |= {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": stamp()}
            if namespace:
                meta["namespace"] = namespace
            if kind == "pods":
                _check_pod(body)
                body["status"] = {"phase": "Pending"}
            return self._put("ADDED", kind, body)

    def update(
        self, kind: str, namespace: str, name: str, change: Callable[[KubeObject], KubeObject],
        valid: Callable[[KubeObject, KubeObject], None] = lambda old, new: None,
    ) -> KubeObject:  # fmt: skip
        """Replace an object by what `change` makes of a copy of it; 409 where that names an old version or another."""
        with self.changed:
            old = self._one(kind, namespace, name)
            new = change(copy.deepcopy(old))
            for field_name in ("uid", "resourceVersion"):
                given = new["metadata"].get(field_name)
                if given and given != old["metadata"][field_name]:
                    text = f'{kind} "{name}" has been modified; apply your changes to the latest version'
                    raise ApiRefusal(409, "Conflict", text)
            valid(old, new)
            kept = {key: old["metadata"][key] for key in _FIXED if key in old["metadata"]}
            new["metadata"] = {**new["metadata"], **kept}
            if "deletionTimestamp" not in old["metadata"]:
                new["metadata"].pop("deletionTimestamp", None)
            if new == old:
                return copy.deepcopy(old)
            if _is_over(new):
                return self._drop(kind, new)
            return self._put("MODIFIED", kind, new)

    def delete(self, kind: str, namespace: str, name: str, grace_s: int | None, uid: str = "") -> KubeObject:
        """Mark an object as leaving, or drop it when nothing keeps it. A grace period can only be shortened."""
        with self.changed:
            old = self._one(kind, namespace, name)
            if uid and uid != old["metadata"]["uid"]:
                raise ApiRefusal(409, "Conflict", f'{kind} "{name}" is another one by now')
            new, meta = copy.deepcopy(old), dict(old["metadata"])
            left_s = _grace(kind, old) if grace_s is None else grace_s
            if kind != "pods" or not old["spec"].get("nodeName") or old["status"].get("phase") in _TERMINAL:
                left_s = 0
            if "deletionTimestamp" in meta:
                left_s = min(left_s, meta["deletionGracePeriodSeconds"])
                if left_s == meta["deletionGracePeriodSeconds"] and left_s > 0:
                    return copy.deepcopy(old)
            else:
                meta["deletionTimestamp"] = stamp(time.time() + left_s)
            meta["deletionGracePeriodSeconds"] = left_s
            new["metadata"] = meta
            if _is_over(new):
                return self._drop(kind, new)
            return self._put("MODIFIED", kind, new)

    def _put(self, change: str, kind: str, body: KubeObject) -> KubeObject:
        self.version += 1
        meta = body["metadata"]
        meta["resourceVersion"] = str(self.version)
        self.objects[kind, meta.get("namespace", ""), meta["name"]] = body
        self.history.append((self.version, change, kind, copy.deepcopy(body)))
        self.changed.notify_all()
        return copy.deepcopy(body)

    def _drop(self, kind: str, body: KubeObject) -> KubeObject:
        gone = self._put("DELETED", kind, body)
        del self.objects[kind, body["metadata"].get("namespace", ""), body["metadata"]["name"]]
        return gone

    def compact(self) -> None:
        """Forget history up to now: watches that have not got so far are told 410."""
        with self.changed:
            self.version += 1
            self.history.clear()
            self.compacted = self.version
            self.changed.notify_all()

    def tell_again(self, name: str) -> None:
        """Have watches hear once more, late, all that was ever told of objects whose name begins so."""
        with self.changed:
            for _, change, kind, body in [one for one in self.history if one[3]["metadata"]["name"].startswith(name)]:
                self.version += 1
                self.history.append((self.version, "MODIFIED" if change == "ADDED" else change, kind, body))
            self.changed.notify_all()

    def since(self, version: int) -> Iterator[Change]:
        """Changes after a number, while the caller holds `changed`; 410 where history does not reach so far."""
        if version < self.compacted:
            raise ApiRefusal(410, "Expired", f"too old resource version: {version} ({self.compacted})")
        first = len(self.history)
        while first and self.history[first - 1][0] > version:
            first -= 1
        yield from self.history[first:]


_FIXED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "name", "namespace")


def _is_over(body: KubeObject) -> bool:
    meta = body["metadata"]
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not meta["deletionGracePeriodSeconds"]


def _grace(kind: str, body: KubeObject) -> int:
    return int(body["spec"].get("terminationGracePeriodSeconds", 30)) if kind == "pods" else 0


def _check_pod(body: KubeObject) -> None:
    containers = body.get("spec", {}).get("containers") or []
    if not containers or not all(one.get("name") and one.get("image") for one in containers):
        raise ApiRefusal(422, "Invalid", "spec.containers: each needs a name and an image")


def stamp(at_s: float | None = None) -> str:
    """A time as Kubernetes writes it: whole seconds, UTC."""
    return datetime.fromtimestamp(time.time() if at_s is None else at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386, a JSON merge patch: what is null goes, objects are merged, all else is replaced."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def selector(text: str) -> Callable[[KubeObject], bool]:
    """A label selector: `a=b,c!=d,e,!f`."""
    parts = [part for part in text.split(",") if part]

    def matches(body: KubeObject) -> bool:
        labels = body["metadata"].get("labels") or {}
        for part in parts:
            name, differs, value = part.partition("!=")
            if differs:
                good = labels.get(name) != value
            elif "=" in part:
                name, _, value = part.replace("==", "=").partition("=")
                good = labels.get(name) == value
            else:
                good = (part.lstrip("!") in labels) != part.startswith("!")
            if not good:
                return False
        return True

    return matches
