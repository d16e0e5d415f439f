"""Fields that an endpoint does not change: a write through it does not own them.

For example, PUT of an object does not change its status, and PUT of its status not the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.machinery.kinds import Kind
from transom.machinery.releases.release import Release

_SPEC, _STATUS, _METADATA = ("f:spec",), ("f:status",), ("f:metadata",)
# What a status endpoint does not change, beside the spec.
_STATUS_RESETS = {
    "/Pod": (("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")),
    "apps/Deployment": (("f:metadata", "f:labels"),),
    "certificates.k8s.io/CertificateSigningRequest": (("f:status", "f:conditions"),),
}
# Kinds whose status endpoint does not change metadata, and the releases in which.
_METADATA_RESETS = {
    "admissionregistration.k8s.io/ValidatingAdmissionPolicy": Release(1, 22),
    "apiextensions.k8s.io/CustomResourceDefinition": Release(1, 22),
    "apiregistration.k8s.io/APIService": Release(1, 22),
    "flowcontrol.apiserver.k8s.io/FlowSchema": Release(1, 22),
    "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration": Release(1, 22),
    "internal.apiserver.k8s.io/StorageVersion": Release(1, 22),
    "networking.k8s.io/ServiceCIDR": Release(1, 36),
    "resource.k8s.io/DeviceTaintRule": Release(1, 22),
    "resource.k8s.io/ResourceClaim": Release(1, 35),
    "resource.k8s.io/ResourcePoolStatusRequest": Release(1, 22),
    "scheduling.k8s.io/PodGroup": Release(1, 22),
    "storage.k8s.io/VolumeAttachment": Release(1, 22),
    "storagemigration.k8s.io/StorageVersionMigration": Release(1, 22),
}
_CUSTOM_METADATA_RESET = Release(1, 36)
# Other endpoints that do not change everything.
_RESETS = {
    ("certificates.k8s.io/CertificateSigningRequest", ""): (_SPEC, _STATUS),
    ("certificates.k8s.io/CertificateSigningRequest", "approval"): (
        _SPEC,
        ("f:status", "f:certificate"),
    ),
    ("certificates.k8s.io/PodCertificateRequest", ""): (),
    ("/Namespace", "finalize"): (_STATUS,),
}


def reset_paths(kind: Kind, release: Release, subresource: str) -> Sequence[tuple[str, ...]]:
    """Paths of managed fields, since 1.22."""
    found = _RESETS.get((kind.key, subresource))
    if found is not None:
        return found
    if not any(s.name == "status" for s in kind.subresources):
        return ()
    if not subresource:
        return (_STATUS,)
    if subresource != "status":
        return ()
    since = _CUSTOM_METADATA_RESET if kind.custom else _METADATA_RESETS.get(kind.key)
    metadata = (_METADATA,) if since is not None and release >= since else ()
    return (_SPEC, *metadata, *_STATUS_RESETS.get(kind.key, ()))
