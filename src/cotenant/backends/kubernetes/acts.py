"""What is done to single pods. All of it may be repeated, and what was done is taken into the mirror at once."""

from __future__ import annotations

from cotenant.backends.kubernetes.client import Body, KubeClient, KubeRefused
from cotenant.backends.kubernetes.mirror import Mirror
from cotenant.backends.kubernetes.pods import MARK, NODE, is_foreign
from cotenant.backends.kubernetes.seen import see_pod

KILL_S = 1  # the shortest grace period after which the kubelet still says that a pod is gone


class PodActs:
    """On the pods of one namespace, at `path`, that bear a mark."""

    def __init__(self, client: KubeClient, pods: Mirror, path: str, mark: str) -> None:
        self._client, self._pods, self._path, self._mark = client, pods, path, mark

    def make(self, body: Body) -> Body:
        """The pod, whoever made it."""
        try:
            pod = self._client.create(self._path, body)
        except KubeRefused as error:
            if error.code != 409:
                raise
            pod = self._client.get(f"{self._path}/{body['metadata']['name']}")
            if pod["metadata"].get("labels", {}).get(MARK) != self._mark:
                raise KubeRefused(409, f"pod {body['metadata']['name']} of an earlier launch is not gone yet") from None
        self._pods.take(pod)
        return pod

    def bind(self, pod: Body) -> None:
        """To the node that it was made for. One that is bound, or about to go, stays as it is."""
        meta = pod["metadata"]
        if pod["spec"].get("nodeName") or "deletionTimestamp" in meta:
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": meta["annotations"][NODE]}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
        try:
            self._client.create(f"{self._path}/{meta['name']}/binding", binding)
        except KubeRefused as error:
            if error.code not in (404, 409):
                raise

    def delete(self, pod: Body, grace_s: int | None) -> None:
        """Ask it to go, within the grace period of its launch unless another is given."""
        try:
            self._pods.take(self._client.delete(self._at(pod), grace_s, pod["metadata"]["uid"]))
        except KubeRefused as error:
            if error.code not in (404, 409):
                raise

    def change(self, pod: Body, patch: Body) -> None:
        """A merge patch; of one that is gone nothing is changed."""
        try:
            self._pods.take(self._client.patch(self._at(pod), patch))
        except KubeRefused as error:
            if error.code != 404:
                raise

    def _at(self, pod: Body) -> str:
        return f"{self._path}/{pod['metadata']['name']}"

    def remove(self, pod: Body) -> None:
        """Give up what is kept of it: the pod goes, at once if it has ended, else when its node has ended it.

        One that somebody else has made stays, without our mark.
        """
        if is_foreign(pod):
            self.change(pod, {"metadata": {"uid": pod["metadata"]["uid"], "labels": {MARK: None}}})
            self._pods.drop(pod)
            return
        node, over = pod["spec"].get("nodeName"), see_pod(pod, lambda name: False).state == "exited"
        self.delete(pod, 0 if over or not node else KILL_S)
        try:
            patch = {"uid": pod["metadata"]["uid"], "finalizers": None, "labels": {MARK: None}}
            self._client.patch(self._at(pod), {"metadata": patch})
        except KubeRefused as error:
            if error.code not in (404, 409):  # gone, or already another one of the name
                raise
        self._pods.drop(pod)
