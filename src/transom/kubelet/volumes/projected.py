"""projected: several sources in one directory, including service account tokens."""

from __future__ import annotations

from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes import payloads
from transom.kubelet.volumes.downward_api import (
    collect_downward_api_data,
    raise_downward_api_errors,
)
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    Payload,
    PodVolumeSpec,
    Projection,
    VolumeHost,
    VolumePlugin,
    fs_group,
)
from transom.machinery import podutil
from transom.machinery.objects import Object

NAME = "kubernetes.io/projected"
_TOKEN_MODE = 0o600


async def set_up_projected(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    mode = spec.source.get("defaultMode")
    if mode is None:
        raise VolumeFailure("No defaultMode used, not even the default value for it")
    payload: dict[str, Projection] = {}
    problems: list[str] = []
    for source in spec.source.get("sources") or ():
        try:
            payload.update(await _part(tools, pod, source, mode, max_age))
        except VolumeFailure as problem:
            problems.append(str(problem))
    raise_downward_api_errors(problems)
    return await payloads.publish_payload(tools, pod, spec, NAME, payload, before, in_memory=True)


async def _part(
    tools: VolumeHost, pod: Object, source: Object, mode: int, max_age: float
) -> Payload:
    namespace = pod["metadata"]["namespace"]
    if part := source.get("secret"):
        return await payloads.secret_payload(
            tools, namespace, part.get("name") or "", part, mode, max_age
        )
    if part := source.get("configMap"):
        return await payloads.config_map_payload(
            tools, namespace, part.get("name") or "", part, mode, max_age
        )
    if part := source.get("downwardAPI"):
        return collect_downward_api_data(tools.env, pod, part.get("items") or (), mode)
    if part := source.get("serviceAccountToken"):
        return await _token(tools, pod, part, mode)
    return {}


async def _token(tools: VolumeHost, pod: Object, part: Object, mode: int) -> Payload:
    user = common_user(pod)
    if user is not None or fs_group(pod) is not None:
        mode = _TOKEN_MODE  # fsGroup ownership gives the group access
    data = await tools.tokens.get(pod, part.get("audience") or "", part.get("expirationSeconds"))
    return {part["path"]: Projection(data, mode, user)}


def common_user(pod: Object) -> int | None:
    """The user of all containers, if it is the same."""
    of_pod = (pod["spec"].get("securityContext") or {}).get("runAsUser")
    users = {
        (container.get("securityContext") or {}).get("runAsUser", of_pod)
        for container in podutil.visit_containers(pod["spec"])
    }
    return users.pop() if len(users) == 1 else None


PLUGIN = VolumePlugin(NAME, set_up_projected, refreshes=True)
