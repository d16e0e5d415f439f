"""The volume of a pod that a message is about: its driver, its disk type, and the nodes that hold it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    is_windows_node,
    key_of_object,
    name_of_object,
    status_condition,
)

_NAMED: Final = re.compile(r'for volume "([^"]+)"')
_SHARE: Final = re.compile(r"/([\w-]+(?:\.[\w-]+)*)/([\w.$-]+)")
_UNBOUND: Final = re.compile(
    r"processing PVC (?P<namespace>[^/\s]+)/(?P<name>\S+): PVC is not bound"
)
_PLUGIN_FOLDERS: Final = {
    "linux": "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
    "windows": "C:\\usr\\libexec\\kubernetes\\kubelet-plugins\\volume\\exec\\",
}
_INCLUDED: Final = ("microsoft.com/smb.cmd", "microsoft.com/iscsi.cmd")
# Field of a volume -> its type in `transom cloud`.
_DISK_TYPES: Final = {
    "awsElasticBlockStore": "aws-ebs",
    "azureDisk": "azure-disk",
    "gcePersistentDisk": "gce-pd",
    "vsphereVolume": "vsphere-volume",
    "cinder": "cinder",
}
# Field of a volume -> the part of its source that ends its name in a node's volumesAttached.
_IDENTITIES: Final = {
    "awsElasticBlockStore": "volumeID",
    "azureDisk": "diskURI",
    "gcePersistentDisk": "pdName",
    "vsphereVolume": "volumePath",
    "cinder": "volumeID",
}


def volume_values(s: ClusterSnapshot, pod: Object, text: str) -> dict[str, str]:
    """Values for causes and remedies: `driver`, `driver_path` and `disk_type` of the volume that a
    text names.
    """
    node = str((pod.get("spec") or {}).get("nodeName", ""))
    found: dict[str, str] = {}
    for source in _sources(s, pod, text):
        flex = source.get("flexVolume") or {}
        if flex.get("driver"):
            windows = node in s.node and is_windows_node(s.node[node])
            found |= _driver_values(str(flex["driver"]), windows)
        for field, disk_type in _DISK_TYPES.items():
            if field in source:
                found["disk_type"] = disk_type
    return found


def flex_driver_remedy(s: ClusterSnapshot, pod: Object, text: str) -> str:
    """What to do about a FlexVolume driver that the kubelet does not find; "" without such a volume."""
    node = str((pod.get("spec") or {}).get("nodeName", ""))
    values = volume_values(s, pod, text)
    if "driver" not in values:
        return ""
    inside = s.inside.get(node)
    if inside is not None and inside.windows and values["driver"] in _INCLUDED:
        return f"transom node set {node} flex-drivers=on"
    kind = "a program" if values["windows"] else "an executable file that begins with #!"
    return (
        f"Install the driver on node {node} as {values['driver_path']} ({kind}), or correct the driver's name. If it "
        "is there, its init command fails: the kubelet's log has the reason."
    )


def _driver_values(driver: str, windows: bool) -> dict[str, str]:
    vendor, _, name = driver.rpartition("/")
    folder = _PLUGIN_FOLDERS["windows" if windows else "linux"]
    separator = "\\" if windows else "/"
    return {
        "driver": driver,
        "driver_path": f"{folder}{vendor}~{name}{separator}{name}"
        if vendor
        else f"{folder}{name}{separator}{name}",
        "windows": "yes" if windows else "",
    }


def is_outdated(s: ClusterSnapshot, event_text: str) -> bool:
    """Whether a message waits for a claim that is bound by now."""
    found = _UNBOUND.search(event_text)
    return found is not None and any(
        key_of_object(claim) == (found["namespace"], found["name"])
        and (claim.get("status") or {}).get("phase") == "Bound"
        for claim in s.of("persistentvolumeclaims")
    )


def multi_attach_remedy(s: ClusterSnapshot, pod: Object, text: str) -> str:
    """How to release the volume on the nodes that have it; "" if they are not known."""
    own = str((pod.get("spec") or {}).get("nodeName", ""))
    users = [
        (key_of_object(one)[0], name_of_object(one), node)
        for one in s.pods
        if (node := str((one.get("spec") or {}).get("nodeName", ""))) not in ("", own)
        and _shares_volume(s, pod, one, text)
        and (one.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]
    nodes = sorted({node for _, _, node in users} or set(_holders(s, pod, text)) - {own})
    if not nodes:
        return ""
    lost = [node for node in nodes if not _is_ready(s, node)]
    if lost:
        return (
            f"Node {lost[0]} has the volume and is not Ready: start it. If it is lost: kubectl delete node {lost[0]}; "
            "without that, the volume is detached six minutes after its pods are gone."
        )
    if users:
        namespace = users[0][0]
        names = " ".join(sorted({name for space, name, _ in users if space == namespace}))
        return (
            f"Run the pods on one node ({nodes[0]} has the volume), or end those that use it there: "
            f"kubectl delete pod {names} --namespace {namespace}"
        )
    return f"Wait until node {nodes[0]} has unmounted and detached the volume."


def emulated_share(text: str) -> str:
    """The command that brings a share of the emulated cloud back; "" if the text names no share."""
    found = _SHARE.search(text.replace("\\\\", "\\").replace("\\", "/").replace("//", "/"))
    if found is None:
        return ""
    return f" A share of the emulated cloud answers after: transom cloud set //{found[1]}/{found[2]} offline=off"


def _is_ready(s: ClusterSnapshot, node: str) -> bool:
    return node in s.node and status_condition(s.node[node], "Ready").get("status") == "True"


def _sources(s: ClusterSnapshot, pod: Object, text: str) -> Iterator[Mapping[str, Any]]:
    """The volumes that a text names; all of the pod if it names none."""
    named = _NAMED.search(text)
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        claim = str((volume.get("persistentVolumeClaim") or {}).get("claimName", ""))
        bound = _bound_volume(s, key_of_object(pod)[0], claim) if claim else None
        names = {volume.get("name"), name_of_object(bound) if bound is not None else None}
        if named is None or named[1] in names:
            yield (bound.get("spec") or {}) if bound is not None else volume


def _bound_volume(s: ClusterSnapshot, namespace: str, claim: str) -> Object | None:
    return next(
        (
            volume
            for volume in s.of("persistentvolumes")
            if ((volume.get("spec") or {}).get("claimRef") or {}).get("name") == claim
            and volume["spec"]["claimRef"].get("namespace") == namespace
        ),
        None,
    )


def _identities(s: ClusterSnapshot, pod: Object, text: str) -> set[str]:
    return {
        str(source[field][key])
        for source in _sources(s, pod, text)
        for field, key in (*_IDENTITIES.items(), ("csi", "volumeHandle"))
        if (source.get(field) or {}).get(key)
    }


def _shares_volume(s: ClusterSnapshot, pod: Object, other: Object, text: str) -> bool:
    return bool(_identities(s, pod, text) & _identities(s, other, ""))


def _holders(s: ClusterSnapshot, pod: Object, text: str) -> Iterator[str]:
    named = _NAMED.search(text)
    for one in s.of("volumeattachments"):
        source = ((one.get("spec") or {}).get("source") or {}).get("persistentVolumeName")
        if named is not None and source == named[1]:
            yield str(one["spec"].get("nodeName", ""))
    identities = _identities(s, pod, text)
    for node in s.nodes:
        for attached in (node.get("status") or {}).get("volumesAttached") or ():
            if any(str(attached.get("name", "")).endswith(identity) for identity in identities):
                yield name_of_object(node)
