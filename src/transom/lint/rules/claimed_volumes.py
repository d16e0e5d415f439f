"""Volumes of Windows pods' claims: volumes, storage classes and modes that Windows cannot mount."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.objects import ManifestObject
from transom.lint.rules.base import LintRule
from transom.lint.tree import Steps
from transom.windows.podchecks import inner_pod, list_or_empty

_NFS, _LINUX_STORAGE, _FILE_SYSTEM, _BLOCK = (
    "WIN-STO-010",
    "WIN-STO-011",
    "WIN-STO-016",
    "WIN-STO-008",
)
_PLUGINS: Final = (
    "cephfs",
    "rbd",
    "glusterfs",
    "quobyte",
    "storageos",
    "portworxVolume",
    "scaleIO",
    "flocker",
)
_LINUX_TYPES: Final = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs"))
_TYPE_PARAMETERS: Final = ("csi.storage.k8s.io/fstype", "fsType", "fstype", "fs-type")
_TYPED: Final = (
    "csi",
    "azureDisk",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "vsphereVolume",
    "iscsi",
    "fc",
    "local",
)


def find_claimed_volumes(context: LintContext) -> Iterator[RuleMatch]:
    for claim in context.of("PersistentVolumeClaim"):
        if context.concerns_windows(claim) and claim.spec.get("volumeMode") == "Block":
            yield RuleMatch(
                claim,
                ("spec", "volumeMode"),
                "a Windows pod uses this claim of a raw block device",
                limit=_BLOCK,
            )
    for volume in context.of("PersistentVolume"):
        if context.concerns_windows(volume):
            yield from _volume(volume)
    for storage in context.of("StorageClass", "storage.k8s.io"):
        if context.concerns_windows(storage):
            yield from _storage_class(storage)
    for workload in context.windows:
        for i, claim_template in enumerate(
            list_or_empty(workload.obj.spec.get("volumeClaimTemplates"))
        ):
            if inner_pod(claim_template, "spec", "volumeMode") == "Block":
                steps: Steps = ("spec", "volumeClaimTemplates", i, "spec", "volumeMode")
                yield RuleMatch(
                    workload.obj, steps, "Windows pods get no raw block devices", limit=_BLOCK
                )


def _volume(volume: ManifestObject) -> Iterator[RuleMatch]:
    if volume.spec.get("nfs"):
        yield RuleMatch(volume, ("spec", "nfs"), "a Windows pod uses this NFS volume", limit=_NFS)
    for plugin in _PLUGINS:
        if volume.spec.get(plugin):
            yield RuleMatch(
                volume,
                ("spec", plugin),
                f"a Windows pod uses this {plugin} volume",
                limit=_LINUX_STORAGE,
            )
    for source in _TYPED:
        kind = inner_pod(volume.spec, source, "fsType")
        if isinstance(kind, str) and kind.lower() in _LINUX_TYPES:
            yield RuleMatch(
                volume,
                ("spec", source, "fsType"),
                f"a Windows pod uses this volume with {kind}",
                limit=_FILE_SYSTEM,
            )


def _storage_class(storage: ManifestObject) -> Iterator[RuleMatch]:
    value: Mapping[str, Any] = storage.value
    provisioner = value.get("provisioner")
    if isinstance(provisioner, str) and "nfs" in provisioner.lower():
        yield RuleMatch(
            storage, ("provisioner",), "Windows pods claim NFS volumes of this class", limit=_NFS
        )
    for name in _TYPE_PARAMETERS:
        kind = inner_pod(value, "parameters", name)
        if isinstance(kind, str) and kind.lower() in _LINUX_TYPES:
            message = f"Windows pods claim volumes of this class, which are formatted with {kind}"
            yield RuleMatch(storage, ("parameters", name), message, limit=_FILE_SYSTEM)


RULE = LintRule(
    "claimed-volumes", find_claimed_volumes, ids=(_NFS, _LINUX_STORAGE, _FILE_SYSTEM, _BLOCK)
)
