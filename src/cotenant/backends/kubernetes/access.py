"""How to reach a cluster and who we are there: a kubeconfig file, or the service account of the pod that we run in."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cotenant.core.errors import InputError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RENEW_S = 60.0  # a service account's token is written anew now and then
EXEC_S = 30.0


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """A server, how it proves itself, and how we do: `token` is asked before every request."""

    server: str
    tls: ssl.SSLContext | None
    token: Callable[[], str]
    namespace: str


def find_access(context: str = "") -> KubeAccess:
    """KUBECONFIG, else ~/.kube/config, else the service account of this pod; `InputError` where there is nothing."""
    given = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(given) if given else Path.home() / ".kube" / "config"
    if path.is_file():
        return from_file(path, context)
    if given:
        raise InputError(f"KUBECONFIG names '{given}', which is no file")
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (ACCOUNT / "token").exists():
        raise InputError("no Kubernetes cluster is known here: set KUBECONFIG, or run in a pod with a service account")
    tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    namespace = (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    address = f"[{host}]" if ":" in host else host
    return KubeAccess(f"https://{address}:{port}", tls, _Renewed(_file_token(ACCOUNT / "token"), RENEW_S), namespace)


def from_file(path: Path, name: str = "") -> KubeAccess:
    """One context of a kubeconfig file, the current one unless another is named."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        chosen = name or config.get("current-context") or ""
        context = _named(config["contexts"], chosen, "context")
        cluster = _named(config["clusters"], context["cluster"], "cluster")
        user = _named(config["users"], context["user"], "user")
        server = str(cluster["server"]).rstrip("/")
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"kubeconfig '{path}' cannot be used: {error!r}: `kubectl config view` shows it") from None
    tls = _tls(cluster, user, path) if server.startswith("https://") else None
    return KubeAccess(server, tls, _token(user, path), context.get("namespace") or "default")


def _named(items: list[Mapping[str, Any]], name: str, what: str) -> dict[str, Any]:
    for item in items:
        if item["name"] == name:
            return dict(item[what])
    raise InputError(f"the kubeconfig has no {what} '{name}': choose one of {', '.join(i['name'] for i in items)}")


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], path: Path) -> ssl.SSLContext:
    """The cluster's own authority, and our certificate where we have one."""
    authority = _bytes(cluster, "certificate-authority", path)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    ours, key = _bytes(user, "client-certificate", path), _bytes(user, "client-key", path)
    if ours and key:
        with tempfile.NamedTemporaryFile() as both:  # the library reads files only
            both.write(ours + b"\n" + key)
            both.flush()
            tls.load_cert_chain(both.name)
    return tls


def _bytes(of: Mapping[str, Any], name: str, path: Path) -> bytes:
    if data := of.get(f"{name}-data"):
        return base64.b64decode(data)
    if file := of.get(name):
        try:
            return (path.parent / str(file)).read_bytes()
        except OSError as error:
            raise InputError(f"kubeconfig '{path}': {name} '{file}': {error.strerror}") from None
    return b""


def _token(user: Mapping[str, Any], path: Path) -> Callable[[], str]:
    if token := user.get("token"):
        return lambda: str(token)
    if file := user.get("tokenFile"):
        return _Renewed(_file_token(path.parent / str(file)), RENEW_S)
    if plugin := user.get("exec"):
        return _Renewed(lambda: _run_plugin(plugin), RENEW_S)
    return lambda: ""


def _file_token(path: Path) -> Callable[[], str]:
    def read() -> str:
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InputError(f"the token of the cluster, '{path}', cannot be read: {error.strerror}") from None

    return read


def _run_plugin(plugin: Mapping[str, Any]) -> str:
    """A program that prints a token, as those of cloud providers do (client.authentication.k8s.io)."""
    env = {**os.environ, **{one["name"]: one["value"] for one in plugin.get("env") or ()}}
    command = [str(plugin["command"]), *map(str, plugin.get("args") or ())]
    try:
        said = subprocess.run(command, env=env, capture_output=True, timeout=EXEC_S, check=True).stdout
        return str(json.loads(said)["status"]["token"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"'{command[0]}' of the kubeconfig gave no token: {error}") from None


class _Renewed:
    """A value that is asked for again when it has become old."""

    def __init__(self, ask: Callable[[], str], every_s: float) -> None:
        self._ask, self._every_s = ask, every_s
        self._known, self._until_s = "", 0.0

    def __call__(self) -> str:
        """The value."""
        if time.monotonic() >= self._until_s:
            self._known, self._until_s = self._ask(), time.monotonic() + self._every_s
        return self._known
