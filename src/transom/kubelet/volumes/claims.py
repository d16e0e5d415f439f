"""Resolves a pod's volume to what to mount: follows claims to the persistent volumes that they are
bound to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.client.api import ApiClient
from transom.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes.plugin import PodVolumeSpec
from transom.machinery import podutil
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.selectors import NODE_SELECTOR_OPERATORS, Requirement

_GROUP_NOTE: Final = "pv.beta.kubernetes.io/gid"
_PV_FIELDS: Final = frozenset(
    (
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeMode",
    )
)


def used_volumes(pod: Object) -> tuple[dict[str, None], set[str]]:
    """Names that containers mount or use as devices, in the order of the pod's volumes; and the
    devices alone.
    """
    mounts: set[str] = set()
    devices: set[str] = set()
    for container in podutil.visit_containers(pod["spec"]):
        mounts.update(m["name"] for m in container.get("volumeMounts") or ())
        devices.update(d["name"] for d in container.get("volumeDevices") or ())
    order = dict.fromkeys(
        v["name"]
        for v in pod["spec"].get("volumes") or ()
        if v["name"] in mounts or v["name"] in devices
    )
    return order, devices


async def resolve_volume(
    client: ApiClient, pod: Object, volume: Object, as_device: bool
) -> PodVolumeSpec:
    """Raises VolumeFailure with the text for the pod."""
    name = volume["name"]
    if claim := volume.get("persistentVolumeClaim"):
        claim_name, read_only = claim.get("claimName") or "", bool(claim.get("readOnly"))
        return await _bound(client, pod, name, claim_name, read_only, as_device, owned=False)
    if (ephemeral := volume.get("ephemeral")) is not None:
        claim_name = f"{pod['metadata']['name']}-{name}"
        return await _bound(
            client, pod, name, claim_name, bool(ephemeral.get("readOnly")), as_device, owned=True
        )
    for kind, source in volume.items():
        if kind != "name" and source is not None:
            return PodVolumeSpec(name, name, kind, source)
    # The source is one that this kubelet does not know: the default, emptyDir, is set before.
    return PodVolumeSpec(name, name, "", {})


async def _bound(
    client: ApiClient,
    pod: Object,
    name: str,
    claim_name: str,
    read_only: bool,
    as_device: bool,
    owned: bool,
) -> PodVolumeSpec:
    namespace = pod["metadata"]["namespace"]
    try:
        claim = await _claim(client, namespace, claim_name)
        if owned and (controller_of(claim) or {}).get("uid") != pod["metadata"]["uid"]:
            raise VolumeFailure("not the ephemeral PVC for the pod")
        volume = await _volume(client, claim)
    except VolumeFailure as problem:
        raise VolumeFailure(
            f"error processing PVC {namespace}/{claim_name}: {problem}"
        ) from problem
    spec = volume["spec"]
    mode = spec.get("volumeMode") or "Filesystem"
    if as_device != (mode == "Block"):
        where = "volumeDevices" if as_device else "volumeMounts"
        raise VolumeFailure(f"volume {name} has volumeMode {mode}, but is specified in {where}")
    kind = next(
        (field for field, value in spec.items() if field not in _PV_FIELDS and value is not None),
        "",
    )
    group = (volume["metadata"].get("annotations") or {}).get(_GROUP_NOTE, "")
    return PodVolumeSpec(
        name,
        volume["metadata"]["name"],
        kind,
        spec.get(kind) or {},
        read_only,
        volume,
        block=mode == "Block",
        group=group,
    )


async def _claim(client: ApiClient, namespace: str, name: str) -> Object:
    try:
        claim = await client.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
    except (ApiError, OSError) as problem:
        raise VolumeFailure(f"failed to fetch PVC from API server: {problem}") from problem
    if claim["metadata"].get("deletionTimestamp"):
        raise VolumeFailure("PVC is being deleted")
    if (claim.get("status") or {}).get("phase") != "Bound":
        raise VolumeFailure("PVC is not bound")
    if not claim["spec"].get("volumeName"):
        raise VolumeFailure("PVC has empty pvc.Spec.VolumeName")
    return claim


async def _volume(client: ApiClient, claim: Object) -> Object:
    name = claim["spec"]["volumeName"]
    try:
        volume = await client.get(PERSISTENT_VOLUMES, "", name)
    except (ApiError, OSError) as problem:
        raise VolumeFailure(f"failed to fetch PV {name} from API server: {problem}") from problem
    ref = volume["spec"].get("claimRef")
    if ref is None:
        raise VolumeFailure(
            f"found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not "
            "yet bound to the claim"
        )
    uid = claim["metadata"]["uid"]
    if ref.get("uid") != uid:
        raise VolumeFailure(
            f"found PV object {name} but its pv.Spec.ClaimRef.UID {ref.get('uid', '')} does "
            f"not point to claim.UID {uid}"
        )
    return volume


def fits_node(volume: Object, labels: Mapping[str, str]) -> bool:
    """Whether the persistent volume can be used on a node with these labels."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if required is None:
        return True
    return any(_matches(term, labels) for term in required.get("nodeSelectorTerms") or ())


def _matches(term: Object, labels: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    return bool(expressions) and all(
        Requirement(
            e["key"], NODE_SELECTOR_OPERATORS.get(e["operator"], ""), tuple(e.get("values") or ())
        ).matches(labels)
        for e in expressions
    )
