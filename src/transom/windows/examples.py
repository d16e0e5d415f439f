"""An example for each limit that a field shows: a small object to which the limit applies.

The object is built from the first field of the record, so it changes with the record; a test checks
that the record matches it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from transom.windows.match import parts_of_pod
from transom.windows.records import RecordField, WindowsLimit

_BASES: Final[Mapping[str, Any]] = {
    "Pod": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "example"},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "containers": [
                {"name": "web", "image": "mcr.microsoft.com/windows/servercore/iis:example"}
            ],
        },
    },
    "Service": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "example"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    },
    "KubeletConfiguration": {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
    },
}
# Values of fields that only have to be set, and of keys that stand for many.
_VALUES: Final[Mapping[str, Any]] = {
    "add": ["NET_ADMIN"],
    "appArmorProfile": {"type": "RuntimeDefault"},
    "awsElasticBlockStore": {"volumeID": "vol-1"},
    "cephfs": {"monitors": ["10.16.154.78:6789"]},
    "container.apparmor.security.beta.kubernetes.io/": "runtime/default",
    "csi": {"driver": "example.org"},
    "drop": ["ALL"],
    "enforceNodeAllocatable": ["pods"],
    "experimental.windows.kubernetes.io/isolation-type": "hyperv",
    "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["db.example"]}],
    "hugepages-": "64Mi",
    "loadBalancerSourceRanges": ["203.0.113.0/24"],
    "name": "kernel.shm_rmid_forced",
    "nfs": {"server": "nfs.example", "path": "/"},
    "options": [{"name": "ndots", "value": "2"}],
    "runAsUserName": "ContainerUser",
    "seLinuxOptions": {"level": "s0:c123,c456"},
    "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
    "serviceAccountToken": {"path": "token"},
    "subPath": "data",
    "supplementalGroups": [1000],
    "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}],
    "topologyKeys": ["kubernetes.io/hostname", "*"],
    "volumeDevices": [{"name": "disk", "devicePath": "/dev/xvda"}],
    "windowsOptions": {"runAsUserName": "ContainerUser"},
}
_KEYS: Final[Mapping[str, str]] = {
    "container.apparmor.security.beta.kubernetes.io/": "web",
    "hugepages-": "2Mi",
}
_TEXTS: Final = (  # for fields that match a regular expression
    "mcr.microsoft.com/windows/servercore:1803",
    "registry.k8s.io/node-problem-detector:v0.8",
    "/bin/sh",
    "ping 8.8.8.8",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/usr/bin",
    "C:\\data\\..\\secret",
)
_OTHER_NUMBERS: Final = 256


def example_object(limit: WindowsLimit) -> dict[str, Any] | None:
    """An object that shows the limit; None if no field does."""
    if not limit.fields:
        return None
    shown = limit.fields[0]
    found = _copy(_BASES[shown.kind])
    for field in (shown, *limit.given):
        _put(found, parts_of_pod(field.path), _value(field))
    return dict(found)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _value(field: RecordField) -> Any:
    key = parts_of_pod(field.path)[-1].removesuffix("*")
    wanted: Any = field.value
    match field.test:
        case "is":
            return wanted
        case "one-of":
            return wanted[0]
        case "above":
            return wanted + 1 if wanted >= 0 else 1000
        case "below":
            return wanted - 1
        case "not":
            return _OTHER_NUMBERS if isinstance(wanted, int) else f"{wanted}-other"
        case "matches":
            return next(text for text in _TEXTS if re.search(wanted, text))
        case "longer":
            return _many(key, int(wanted) + 1)
    return _copy(_VALUES.get(key, "example"))


def _many(key: str, count: int) -> list[Any]:
    if key == "containers":
        return [{"name": f"c{i}", "image": "example"} for i in range(count)]
    return [f"{i}.example" for i in range(count)]


def _put(found: Any, parts: tuple[str, ...], value: Any) -> None:
    """Sets a value at a path; elements of lists and volumes are created as needed."""
    at = found
    for part, after in zip(parts, (*parts[1:], ""), strict=True):
        last = not after
        if part.startswith("["):
            if not at:
                at.append(_element(parts, last, value))
            if last:
                at[0] = value
            at = at[0]
            continue
        key = part.removesuffix("*")
        key += _KEYS.get(key, "") if part.endswith("*") else ""
        if last:
            at[key] = value
        else:
            at = at.setdefault(key, [] if after.startswith("[") else {})


def _element(parts: tuple[str, ...], last: bool, value: Any) -> Any:
    """A new element of a list: volumes and their mounts have names."""
    if last:
        return value
    if "volumeMounts" in parts:
        return {"name": "data", "mountPath": "C:\\data"}
    return {"name": "data"} if "volumes" in parts and "sources" not in parts else {}
