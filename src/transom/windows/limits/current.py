"""Limits that the documentation of current releases states, from a table. What a manifest shows of
them is here: fields, and how serious they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transom.windows.limits.pods import HOST_PROCESS
from transom.windows.records import RecordField, WindowsLimit
from transom.windows.tables import current_limits

_WINDOWS: Final = (RecordField("spec.os.name", "is", "windows"),)
_ISOLATION: Final = "metadata.annotations['experimental.windows.kubernetes.io/isolation-type']"
_SHOWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "WIN-OS-102": {"builds": (17763, 17763)},
    "WIN-OS-103": {"builds": (18362, 19042)},
    "WIN-OS-110": {
        "fields": (RecordField(_ISOLATION),),
        "severity": "warning",
        "fix": "drop",
        "topics": ("hyper-v", "isolation"),
    },
    "WIN-OS-119": {"runtimes": ("docker",)},
    "WIN-OS-136": {
        "builds": (0, 19042),
        "patches": ((17763, 1817), (19041, 662), (19042, 662)),
        "runtimes": ("containerd",),
    },
    "WIN-POD-113": {
        "needs": ("ContainerStopSignals",),
        "fields": (
            RecordField(
                "spec.containers[*].lifecycle.stopSignal", "none-of", ("SIGTERM", "SIGKILL")
            ),
        ),
        "given": _WINDOWS,
        "severity": "error",
        "message": 'Unsupported value: "{signal}": supported values: "SIGKILL", "SIGTERM"',
    },
    "WIN-POD-114": {"message": "windows pods cannot be resized", "topics": ("resize",)},
    "WIN-POD-115": {
        "fields": (RecordField("spec.resources"),),
        "severity": "error",
        "fix": "drop",
        "reason": "PodLevelResourcesNotSupported",
        "message": "may not be set for a windows pod",
        "note": "Without spec.os.name the API server accepts them, and the kubelet of a Windows node "
        "rejects the pod.",
    },
    "WIN-NET-105": {"runtimes": ("containerd",), "unless": HOST_PROCESS},
    "WIN-NET-107": {"builds": (17763, 17763), "networks": ("overlay",)},
    "WIN-NET-108": {"builds": (17763, 17763), "networks": ("overlay",), "patches": ((17763, 379),)},
    "WIN-NET-115": {
        "fields": (
            RecordField("spec.containers[*].ports[*].protocol", "is", "SCTP"),
            RecordField("spec.ports[*].protocol", "is", "SCTP", kind="Service"),
        ),
        "severity": "error",
        "topics": ("sctp", "protocol"),
    },
    "WIN-SVC-108": {"builds": (0, 20347)},
    "WIN-STO-103": {
        "fields": (RecordField("spec.volumes[*].awsElasticBlockStore"),),
        "severity": "warning",
    },
    "WIN-STO-104": {"fields": (RecordField("spec.volumes[*].azureDisk"),), "severity": "warning"},
    "WIN-STO-105": {
        "fields": (RecordField("spec.volumes[*].gcePersistentDisk"),),
        "severity": "warning",
    },
    "WIN-STO-106": {"fields": (RecordField("spec.volumes[*].azureFile"),), "severity": "warning"},
    "WIN-STO-107": {
        "fields": (RecordField("spec.volumes[*].vsphereVolume"),),
        "severity": "warning",
    },
    "WIN-STO-109": {"fields": (RecordField("spec.volumes[*].flexVolume"),), "severity": "info"},
    "WIN-STO-116": {
        "check": "system-drive-mount",
        "severity": "warning",
        "runtimes": ("containerd",),
        "topics": ("mountPath", "volume"),
    },
    "WIN-STO-119": {
        "needs": ("EmptyDirVolumeMode",),
        "fields": (RecordField("spec.volumes[*].emptyDir.mode"),),
        "severity": "info",
        "fix": "drop",
    },
    "WIN-STO-120": {
        "needs": ("VolumeBindMountOptions",),
        "fields": (RecordField("spec.containers[*].volumeMounts[*].bindMountOptions"),),
        "severity": "info",
        "fix": "drop",
    },
    "WIN-HP-108": {"topics": ("hostProcess",)},
    "WIN-HP-123": {
        "check": "host-process-non-root",
        "severity": "warning",
        "topics": ("hostProcess", "runAsNonRoot"),
    },
}

LIMITS: Final = (
    *(
        limit._replace(**_SHOWN[limit.id]) if limit.id in _SHOWN else limit
        for limit in current_limits()
    ),
    WindowsLimit(
        id="WIN-RES-201",
        title="Resource claims are not prepared on Windows nodes",
        statement="The kubelet on Windows has no manager for dynamic resource allocation: devices "
        "of resource claims never reach a container.",
        effect="ignored",
        remedy="Use a device plugin, and request its resource in resources.limits.",
        since=(1, 34),
        fields=(
            RecordField("spec.resourceClaims"),
            RecordField("spec.containers[*].resources.claims"),
        ),
        severity="warning",
        section="Resources",
        topics=("DRA", "resourceClaims", "devices"),
    ),
)
