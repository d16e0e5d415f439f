"""NodeVolumeLimits: the number of volumes of each CSI driver that a node can have attached."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from transom.machinery.objects import Object
from transom.scheduler.plugins.volume_limits import VolumeLimits
from transom.scheduler.snapshot import NodeInfo
from transom.scheduler.volumes import claim_names, storage_class_name

_PREFIX = "attachable-volumes-"
_CSI = _PREFIX + "csi-"
_NAME_LIMIT = 63
# In-tree drivers have their own plugins.
_IN_TREE = ("aws-ebs", "gce-pd", "cinder", "azure-disk", "azure-file")
_IN_TREE_PROVISIONERS = frozenset(f"kubernetes.io/{name}" for name in _IN_TREE)


@lru_cache(maxsize=256)
def limit_key(driver: str) -> str:
    """The resource name of a driver's limit in the allocatable resources of nodes."""
    if len(_CSI) + len(driver) < _NAME_LIMIT:
        return _CSI + driver
    return (
        _CSI + driver[:23] + hashlib.sha1(driver.encode(), usedforsecurity=False).hexdigest()[:16]
    )


class NodeVolumeLimits(VolumeLimits[dict[str, str]]):
    name = "NodeVolumeLimits"

    def _has_room(self, node: NodeInfo, new: dict[str, str]) -> bool:
        limits = self._limits(node)
        if not limits:
            return True
        there: dict[str, str] = {}
        for pod in node.claims.values():
            there |= self._attached(pod.volumes, pod.namespace, pod.name)
        used = Counter(there.values())
        wanted = Counter(key for volume, key in new.items() if volume not in there)
        return all(
            used[key] + count <= limits[key] for key, count in wanted.items() if key in limits
        )

    def _limits(self, node: NodeInfo) -> dict[str, int]:
        limits = {
            name: value for name, value in node.allocatable.scalars if name.startswith(_PREFIX)
        }
        csi_node = self._volumes.csi_nodes.by_key(node.name)
        for driver in ((csi_node or {}).get("spec") or {}).get("drivers") or ():
            count = (driver.get("allocatable") or {}).get("count")
            if count is not None:
                limits[limit_key(driver["name"])] = count
        return limits

    def _attached(
        self, pod_volumes: Iterable[Object], namespace: str, pod_name: str
    ) -> dict[str, str]:
        """Volumes of CSI drivers, and the limit each counts against."""
        out = {}
        for name in claim_names(pod_volumes, pod_name):
            claim = self._volumes.claim(namespace, name)
            driver, handle = self._driver(claim, namespace, name) if claim is not None else ("", "")
            if driver and handle:
                out[f"{driver}/{handle}"] = limit_key(driver)
        return out

    def _driver(self, claim: Object, namespace: str, name: str) -> tuple[str, str]:
        bound = self._volumes.volume(claim["spec"].get("volumeName", ""))
        if bound is not None:
            source = bound["spec"].get("csi") or {}
            return source.get("driver", ""), source.get("volumeHandle", "")
        found = (
            self._volumes.storage_class(storage_class_name(claim))
            if storage_class_name(claim)
            else None
        )
        provisioner = (found or {}).get("provisioner", "")
        if not provisioner or provisioner in _IN_TREE_PROVISIONERS:
            return "", ""
        return provisioner, f"claim {namespace}/{name}"
