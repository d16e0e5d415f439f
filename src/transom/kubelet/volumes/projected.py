"""projected: several sources in one directory, and the tokens of service accounts."""

from __future__ import annotations

from transom.kubelet.base import VolumeFailure
from transom.kubelet.volumes import payloads
from transom.kubelet.volumes.downward_api import collect, raise_all
from transom.kubelet.volumes.plugin import Mounted, Payload, Plugin, Projection, Spec, Tools, fs_group
from transom.machinery import podutil
from transom.machinery.objects import Object

NAME = "kubernetes.io/projected"
_TOKEN_MODE = 0o600


async def set_up(tools: Tools, pod: Object, spec: Spec, before: Mounted | None, max_age: float) -> Mounted:
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
    raise_all(problems)
    return payloads.put(tools, pod, spec, NAME, payload, before, in_memory=True)


async def _part(tools: Tools, pod: Object, source: Object, mode: int, max_age: float) -> Payload:
    namespace = pod["metadata"]["namespace"]
    if part := source.get("secret"):
        return await payloads.of_secret(tools, namespace, part.get("name") or "", part, mode, max_age)
    if part := source.get("configMap"):
        return await payloads.of_config_map(tools, namespace, part.get("name") or "", part, mode, max_age)
    if part := source.get("downwardAPI"):
        return collect(tools.env, pod, part.get("items") or (), mode)
    if part := source.get("serviceAccountToken"):
        return await _token(tools, pod, part, mode)
    return {}


async def _token(tools: Tools, pod: Object, part: Object, mode: int) -> Payload:
    user = common_user(pod)
    if user is not None or fs_group(pod) is not None:
        mode = _TOKEN_MODE  # the group gets its share of it with the volume's ownership
    data = await tools.tokens.get(pod, part.get("audience") or "", part.get("expirationSeconds"))
    return {part["path"]: Projection(data, mode, user)}


def common_user(pod: Object) -> int | None:
    """The user of all containers, when it is one."""
    of_pod = (pod["spec"].get("securityContext") or {}).get("runAsUser")
    users = {
        (container.get("securityContext") or {}).get("runAsUser", of_pod) for container in podutil.containers(pod["spec"])
    }
    return users.pop() if len(users) == 1 else None


PLUGIN = Plugin(NAME, set_up, refreshes=True)
