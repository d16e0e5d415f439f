"""Warnings for API versions that are deprecated: since when, removal, replacement. Those of 1.20 are
here, those of later releases in the tables of `machinery.releases`.
"""

from __future__ import annotations

from transom.machinery.kinds import GVK
from transom.machinery.releases import DEFAULT, Release, has_tables
from transom.machinery.releases.served import deprecation_text

# (group, version) -> (deprecated, removed) for all its kinds, or for one kind.
_DEPRECATED: dict[tuple[str, str], tuple[str, str]] = {
    ("admissionregistration.k8s.io", "v1beta1"): ("v1.16", "v1.22"),
    ("apiextensions.k8s.io", "v1beta1"): ("v1.16", "v1.22"),
    ("apiregistration.k8s.io", "v1beta1"): ("v1.19", "v1.22"),
    ("authentication.k8s.io", "v1beta1"): ("v1.19", "v1.22"),
    ("authorization.k8s.io", "v1beta1"): ("v1.19", "v1.22"),
    ("certificates.k8s.io", "v1beta1"): ("v1.19", "v1.22"),
    ("coordination.k8s.io", "v1beta1"): ("v1.19", "v1.22"),
    ("extensions", "v1beta1"): ("v1.14", "v1.22"),
    ("networking.k8s.io", "v1beta1"): ("v1.19", "v1.22"),
    ("rbac.authorization.k8s.io", "v1beta1"): ("v1.17", "v1.22"),
    ("scheduling.k8s.io", "v1beta1"): ("v1.14", "v1.22"),
    ("storage.k8s.io", "v1beta1"): ("v1.19", "v1.22"),
}
_EXCEPTIONS: dict[tuple[str, str, str], tuple[str, str] | None] = {
    ("storage.k8s.io", "v1beta1", "CSINode"): ("v1.17", "v1.22"),
    ("storage.k8s.io", "v1beta1", "CSIStorageCapacity"): None,
}
_MOVED = {"extensions": "networking.k8s.io"}  # the group with the remaining kinds of a removed one


def deprecation_warning(gvk: GVK, release: Release = DEFAULT) -> str:
    if has_tables(release):
        return deprecation_text(release, gvk)
    if gvk == ("", "v1", "ComponentStatus"):
        return "v1 ComponentStatus is deprecated in v1.19+"
    key = (gvk.group, gvk.version, gvk.kind)
    when = _EXCEPTIONS[key] if key in _EXCEPTIONS else _DEPRECATED.get((gvk.group, gvk.version))
    if when is None:
        return ""
    since, until = when
    group = _MOVED.get(gvk.group, gvk.group)
    return (
        f"{gvk.api_version} {gvk.kind} is deprecated in {since}+, unavailable in {until}+; use "
        f"{group}/v1 {gvk.kind}"
    )
