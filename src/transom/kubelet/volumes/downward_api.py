"""downwardAPI: a pod's own fields as files."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from transom.kubelet.base import KubeletContext
from transom.kubelet.downward import UnsupportedFieldPath, pod_field, resource_value
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes import payloads
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    Payload,
    PodVolumeSpec,
    Projection,
    VolumeHost,
    VolumePlugin,
)
from transom.machinery.objects import Object

NAME = "kubernetes.io/downward-api"


def collect_downward_api_data(
    env: KubeletContext, pod: Object, items: Sequence[Object], mode: int | None
) -> Payload:
    """Raises VolumeFailure."""
    if mode is None:
        raise VolumeFailure("No defaultMode used, not even the default value for it")
    out, problems = {}, []
    for item in items:
        own = item.get("mode")
        try:
            data = _value(env, pod, item).encode()
        except UnsupportedFieldPath as problem:
            problems.append(str(problem))
            continue
        out[posixpath.normpath(item["path"])] = Projection(data, mode if own is None else own)
    raise_downward_api_errors(problems)
    return out


def _value(env: KubeletContext, pod: Object, item: Object) -> str:
    if ref := item.get("fieldRef"):
        return pod_field(pod, ref.get("fieldPath") or "")
    if ref := item.get("resourceFieldRef"):
        return resource_value(pod, None, ref, _allocatable(env))
    return ""


def _allocatable(env: KubeletContext) -> Mapping[str, str]:
    node = env.node()
    if node is None:
        raise UnsupportedFieldPath(
            f"error retrieving node: node {env.config.node_name!r} not found".replace("'", '"')
        )
    return (node.get("status") or {}).get("allocatable") or {}


def raise_downward_api_errors(problems: Sequence[str]) -> None:
    """Several failures as one, without duplicates."""
    unique = list(dict.fromkeys(problems))
    if len(unique) == 1:
        raise VolumeFailure(unique[0])
    if unique:
        raise VolumeFailure("[" + ", ".join(unique) + "]")


async def set_up_downward_api(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    payload = collect_downward_api_data(
        tools.env, pod, spec.source.get("items") or (), spec.source.get("defaultMode")
    )
    return await payloads.publish_payload(tools, pod, spec, NAME, payload, before, in_memory=True)


PLUGIN = VolumePlugin(NAME, set_up_downward_api, refreshes=True)
