"""Local storage limits of pods: of an emptyDir, of a container's writable layer and logs, of a
whole pod. Pure except for `PodUsageMeter`, which measures.
"""

from __future__ import annotations

from transom.kit.goquote import go_quote
from transom.kubelet.eviction.usage import PodUsageMeter, is_local_ephemeral
from transom.machinery.objects import Object
from transom.machinery.quantity import Quantity, parse_quantity

_EPHEMERAL = "ephemeral-storage"


def excess_storage(pod: Object, usage: PodUsageMeter) -> str:
    """Why the pod must be evicted; empty when it is within its limits. Free for a pod without
    limits.
    """
    return _empty_dirs(pod, usage) or _pod(pod, usage) or _containers(pod, usage)


def _empty_dirs(pod: Object, usage: PodUsageMeter) -> str:
    for volume in pod["spec"].get("volumes") or ():
        limit = (volume.get("emptyDir") or {}).get("sizeLimit")
        if limit is None or parse_quantity(limit).sign <= 0 or usage.pod(pod) is None:
            continue
        used = usage.volumes(pod).get(volume["name"])
        if used is not None and Quantity(used.used) > parse_quantity(limit):
            return (
                f"Usage of EmptyDir volume {go_quote(volume['name'])} exceeds the limit "
                f"{go_quote(str(parse_quantity(limit)))}. "
            )
    return ""


def _pod(pod: Object, usage: PodUsageMeter) -> str:
    limit = _pod_limit(pod)
    use = usage.pod(pod) if limit is not None else None
    if limit is None or use is None:
        return ""
    used = use.disk + usage.local_volumes(pod, is_local_ephemeral) + usage.hosts_file(pod)
    if Quantity(used.used) > limit:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    return ""


def _pod_limit(pod: Object) -> Quantity | None:
    """The sum over containers, at least the largest of an init container; None when no container
    has a limit.
    """
    spec = pod["spec"]
    total: Quantity | None = None
    for container in spec.get("containers") or ():
        limit = _limit(container)
        if limit is not None:
            total = limit if total is None else total + limit
    for container in spec.get("initContainers") or ():
        limit = _limit(container)
        if limit is not None and (total is None or total < limit):
            total = limit
    overhead = (spec.get("overhead") or {}).get(_EPHEMERAL)
    if overhead is not None and total is not None and not total.is_zero:
        total = total + parse_quantity(overhead)
    return total


def _containers(pod: Object, usage: PodUsageMeter) -> str:
    limits = {
        c["name"]: limit
        for c in pod["spec"].get("containers") or ()
        if (limit := _limit(c)) and limit.value()
    }
    use = usage.pod(pod) if limits else None
    if use is None:
        return ""
    for container in use.containers:
        limit = limits.get(container.name)
        if limit is not None and limit < Quantity((container.root + container.logs).used):
            return (
                f"Container {container.name} exceeded its local ephemeral storage limit "
                f"{go_quote(str(limit))}. "
            )
    return ""


def _limit(container: Object) -> Quantity | None:
    resources = container.get("resources")
    text = (resources.get("limits") or {}).get(_EPHEMERAL) if resources else None
    return parse_quantity(text) if text is not None else None
