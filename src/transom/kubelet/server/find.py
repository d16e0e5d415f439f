"""From the names in a URL to a pod, its container and what the runtime knows of them; with the kubelet's words for what
is not there."""

from __future__ import annotations

from typing import Any

from transom.kubelet.base import Env
from transom.kubelet.parts import PodView
from transom.kubelet.server.answers import Failure
from transom.machinery.objects import Object
from transom.runtime.api import Container, Sandbox

_KINDS = ("containers", "initContainers", "ephemeralContainers")


def pod(view: PodView, namespace: str, name: str, missing: str = "pod does not exist") -> Object:
    found = view.pod(namespace, name)
    if found is None:
        raise Failure(404, missing)
    return found


def full_name(pod: Object) -> str:
    return f"{pod['metadata']['name']}_{pod['metadata']['namespace']}"


def spec_of(pod: Object, container: str) -> Any:
    """A container of a pod of any kind, or None."""
    spec = pod["spec"]
    for kind in _KINDS:
        for each in spec.get(kind) or ():
            if each["name"] == container:
                return each
    return None


def running_container(env: Env, pod: Object, name: str) -> Container | None:
    for container in env.runtime.containers(pod["metadata"]["uid"]):
        if container.name == name and container.state == "running":
            return container
    return None


def ready_sandbox(env: Env, pod: Object) -> Sandbox | None:
    for sandbox in env.runtime.sandboxes(pod["metadata"]["uid"]):
        if sandbox.state == "ready":
            return sandbox
    return None
