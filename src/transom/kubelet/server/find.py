"""Resolves the names in a URL to a pod, its container and their state in the runtime, with the
kubelet's error texts.
"""

from __future__ import annotations

from typing import Any

from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodView
from transom.kubelet.server.answers import HttpFailure
from transom.machinery.objects import Object
from transom.runtime.api import Container, Sandbox

_KINDS = ("containers", "initContainers", "ephemeralContainers")


def find_pod(
    view: PodView, namespace: str, name: str, missing: str = "pod does not exist"
) -> Object:
    found = view.pod(namespace, name)
    if found is None:
        raise HttpFailure(404, missing)
    return found


def pod_display_name(pod: Object) -> str:
    return f"{pod['metadata']['name']}_{pod['metadata']['namespace']}"


def container_spec_of(pod: Object, container: str) -> Any:
    """A container of a pod, of any type, or None."""
    spec = pod["spec"]
    for kind in _KINDS:
        for each in spec.get(kind) or ():
            if each["name"] == container:
                return each
    return None


def running_container(env: KubeletContext, pod: Object, name: str) -> Container | None:
    for container in env.runtime.containers(pod["metadata"]["uid"]):
        if container.name == name and container.state == "running":
            return container
    return None


def ready_sandbox(env: KubeletContext, pod: Object) -> Sandbox | None:
    for sandbox in env.runtime.sandboxes(pod["metadata"]["uid"]):
        if sandbox.state == "ready":
            return sandbox
    return None
