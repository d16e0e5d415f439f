"""GET /pods and /runningpods/: the pods assigned to the node, and those its runtime runs."""

from __future__ import annotations

from collections.abc import Iterable

from transom.http.messages import HttpResponse
from transom.kubelet import labels
from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodView
from transom.kubelet.server import answers
from transom.machinery.objects import Object


def _list(items: Iterable[Object]) -> HttpResponse:
    return answers.json_answer(
        {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(items)}, b"\n"
    )


def serve_pods(view: PodView) -> HttpResponse:
    return _list(_bare(pod) for pod in view.pods())


def _bare(pod: Object) -> Object:
    """List items contain neither kind nor apiVersion."""
    if "kind" not in pod and "apiVersion" not in pod:
        return pod
    return {name: value for name, value in pod.items() if name not in ("kind", "apiVersion")}


def serve_running_pods(env: KubeletContext) -> HttpResponse:
    found: dict[str, Object] = {}
    for sandbox in env.runtime.sandboxes():
        if sandbox.state == "ready":
            found.setdefault(
                sandbox.config.uid,
                _pod(sandbox.config.uid, sandbox.config.name, sandbox.config.namespace),
            )
    for container in env.runtime.containers():
        if container.state == "running":
            container_labels = container.labels
            uid = container_labels.get(labels.POD_UID, "")
            pod = found.setdefault(
                uid,
                _pod(
                    uid,
                    container_labels.get(labels.POD_NAME, ""),
                    container_labels.get(labels.POD_NAMESPACE, ""),
                ),
            )
            spec = {"name": container.name, "image": container.image, "resources": {}}
            pod["spec"]["containers"] = [*(pod["spec"]["containers"] or ()), spec]
    return _list(found.values())


def _pod(uid: str, name: str, namespace: str) -> Object:
    meta = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": None}
    return {"metadata": meta, "spec": {"containers": None}, "status": {}}
