"""downwardAPI: what a pod may know of itself, as files."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from transom.kubelet.base import Env, VolumeFailure
from transom.kubelet.downward import Unsupported, pod_field, resource_value
from transom.kubelet.volumes import payloads
from transom.kubelet.volumes.plugin import Mounted, Payload, Plugin, Projection, Spec, Tools
from transom.machinery.objects import Object

NAME = "kubernetes.io/downward-api"


def collect(env: Env, pod: Object, items: Sequence[Object], mode: int | None) -> Payload:
    """Raises VolumeFailure."""
    if mode is None:
        raise VolumeFailure("No defaultMode used, not even the default value for it")
    out, problems = {}, []
    for item in items:
        own = item.get("mode")
        try:
            data = _value(env, pod, item).encode()
        except Unsupported as problem:
            problems.append(str(problem))
            continue
        out[posixpath.normpath(item["path"])] = Projection(data, mode if own is None else own)
    raise_all(problems)
    return out


def _value(env: Env, pod: Object, item: Object) -> str:
    if ref := item.get("fieldRef"):
        return pod_field(pod, ref.get("fieldPath") or "")
    if ref := item.get("resourceFieldRef"):
        return resource_value(pod, None, ref, _allocatable(env))
    return ""


def _allocatable(env: Env) -> Mapping[str, str]:
    node = env.node()
    if node is None:
        raise Unsupported(f"error retrieving node: node {env.config.node_name!r} not found".replace("'", '"'))
    return (node.get("status") or {}).get("allocatable") or {}


def raise_all(problems: Sequence[str]) -> None:
    """Several failures as one, each told once."""
    unique = list(dict.fromkeys(problems))
    if len(unique) == 1:
        raise VolumeFailure(unique[0])
    if unique:
        raise VolumeFailure("[" + ", ".join(unique) + "]")


async def set_up(tools: Tools, pod: Object, spec: Spec, before: Mounted | None, max_age: float) -> Mounted:
    payload = collect(tools.env, pod, spec.source.get("items") or (), spec.source.get("defaultMode"))
    return payloads.put(tools, pod, spec, NAME, payload, before, in_memory=True)


PLUGIN = Plugin(NAME, set_up, refreshes=True)
