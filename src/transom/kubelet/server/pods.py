"""GET /pods and /runningpods/: the pods a node is to run, and those its runtime runs."""

from __future__ import annotations

from collections.abc import Iterable

from transom.http.messages import Response
from transom.kubelet import labels
from transom.kubelet.base import Env
from transom.kubelet.parts import PodView
from transom.kubelet.server import answers
from transom.machinery.objects import Object


def _list(items: Iterable[Object]) -> Response:
    return answers.json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(items)}, b"\n")


def serve(view: PodView) -> Response:
    return _list(_bare(pod) for pod in view.pods())


def _bare(pod: Object) -> Object:
    """An item of a list says neither its kind nor its version."""
    if "kind" not in pod and "apiVersion" not in pod:
        return pod
    return {name: value for name, value in pod.items() if name not in ("kind", "apiVersion")}


def serve_running(env: Env) -> Response:
    found: dict[str, Object] = {}
    for sandbox in env.runtime.sandboxes():
        if sandbox.state == "ready":
            found.setdefault(sandbox.config.uid, _pod(sandbox.config.uid, sandbox.config.name, sandbox.config.namespace))
    for container in env.runtime.containers():
        if container.state == "running":
            said = container.labels
            uid = said.get(labels.POD_UID, "")
            pod = found.setdefault(uid, _pod(uid, said.get(labels.POD_NAME, ""), said.get(labels.POD_NAMESPACE, "")))
            spec = {"name": container.name, "image": container.image, "resources": {}}
            pod["spec"]["containers"] = [*(pod["spec"]["containers"] or ()), spec]
    return _list(found.values())


def _pod(uid: str, name: str, namespace: str) -> Object:
    meta = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": None}
    return {"metadata": meta, "spec": {"containers": None}, "status": {}}
