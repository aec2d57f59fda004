"""Who leads, as the cluster sees it: a Lease object that its holder renews, and that others take when it has not.

The journal already lets one service write at a time; the lease keeps one that has lost its journal from touching pods,
and shows people who leads (`kubectl get lease`). Times of the holder are not trusted: whoever waits measures by its own
clock how long the object has not changed.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime

from cotenant.backends.base import BackendError, Unreachable
from cotenant.backends.kubernetes.client import Body, KubeClient, KubeRefused
from cotenant.core.errors import InputError

DURATION_S = 3.0


class KubeLease:
    """Held from `acquire` to `release`. `check` raises once it may be somebody else's."""

    def __init__(
        self, client: KubeClient, namespace: str, name: str, holder: str, duration_s: float = DURATION_S
    ) -> None:
        self._client, self._name, self._holder, self._duration_s = client, name, holder, duration_s
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._body: Body = {}
        self._renewed_s = 0.0
        self._taken_by = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def acquire(self) -> None:
        """Take it: at once if it is free, after its time if its holder is silent; `InputError` if that one lives."""
        seen, since_s, until_s = "", time.monotonic(), time.monotonic() + 3 * self._duration_s
        while True:
            body = self._read()
            spec, version = body.get("spec", {}), body["metadata"].get("resourceVersion", "")
            if version != seen:
                seen, since_s = version, time.monotonic()
            holder = spec.get("holderIdentity") or ""
            waits_s = float(spec.get("leaseDurationSeconds") or self._duration_s)
            if holder in ("", self._holder) or time.monotonic() - since_s > waits_s:
                with suppress(KubeRefused):  # somebody was faster: look again
                    self._write(body, holder)
                    break
            if time.monotonic() > until_s:
                raise InputError(f"lease '{self._name}' is held by {holder}, who is alive: is it another service's?")
            self._ending.wait(0.2)
        self._thread.start()

    def check(self) -> None:
        """Whether nobody else can have it."""
        if self._taken_by:
            raise Unreachable(f"lease '{self._name}' is {self._taken_by}'s by now: this service does nothing more")
        if time.monotonic() - self._renewed_s > self._duration_s:
            raise Unreachable(f"lease '{self._name}' could not be renewed: somebody else may have it")

    def release(self) -> None:
        """Give it back, so that the next one need not wait."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        if not self._taken_by and self._body:
            with suppress(BackendError):
                spec = {**self._body["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                self._client.replace(f"{self._all}/{self._name}", {**self._body, "spec": spec})

    def _read(self) -> Body:
        try:
            return self._client.get(f"{self._all}/{self._name}")
        except KubeRefused as error:
            if error.code != 404:
                raise
            return {"metadata": {"name": self._name}}

    def _write(self, body: Body, before: str) -> None:
        spec, now = dict(body.get("spec", {})), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        if before != self._holder:
            spec |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        spec |= {"holderIdentity": self._holder, "leaseDurationSeconds": math.ceil(self._duration_s), "renewTime": now}
        at_s = time.monotonic()
        asked = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": body["metadata"], "spec": spec}
        if body["metadata"].get("resourceVersion"):
            self._body = self._client.replace(f"{self._all}/{self._name}", asked)
        else:
            self._body = self._client.create(self._all, asked)
        self._renewed_s = at_s

    def _run(self) -> None:
        while not self._ending.wait(self._duration_s / 3):
            try:
                self._write(self._body, self._holder)
            except KubeRefused as error:
                if error.code == 409:
                    self._settle()
            except BackendError:
                continue  # `check` counts how long

    def _settle(self) -> None:
        """The object is not as we left it: whose is it?"""
        with suppress(BackendError):
            self._body = self._read()
            holder = self._body.get("spec", {}).get("holderIdentity") or ""
            if holder not in ("", self._holder):
                self._taken_by = holder
                self._ending.set()
