"""PodSecurityPolicy: whether a policy is consistent. Policies are enforced only if admission is
configured for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from transom.kit.goquote import go_quote
from transom.machinery.field import duplicate, forbidden, invalid, not_supported, required
from transom.machinery.validation.checks import csi_driver_name, dns_subdomain
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import validate_object_meta, validate_object_meta_update
from transom.machinery.validation.names import byte_len, name_is_dns_subdomain
from transom.machinery.validation.pod_annotations import apparmor_problem, check_seccomp_name
from transom.machinery.validation.rules import Errors, Object, ValidationRules
from transom.machinery.validation.security import PROC_MOUNTS, SYSCTL_LIMIT, SYSCTL_SEGMENT

_APPARMOR_DEFAULT = "apparmor.security.beta.kubernetes.io/defaultProfileName"
_APPARMOR_ALLOWED = "apparmor.security.beta.kubernetes.io/allowedProfileNames"
_SECCOMP_DEFAULT = "seccomp.security.alpha.kubernetes.io/defaultProfileName"
_SECCOMP_ALLOWED = "seccomp.security.alpha.kubernetes.io/allowedProfileNames"
_ALL = "*"

_USER_RULES = ("MustRunAs", "MustRunAsNonRoot", "RunAsAny")
_GROUP_RULES = ("MustRunAs", "RunAsAny", "MayRunAs")
_SHARED_GROUP_RULES = tuple(sorted(_GROUP_RULES))
_SELINUX_RULES = ("MustRunAs", "RunAsAny")
_VOLUMES = tuple(
    sorted(
        (
            _ALL,
            "awsElasticBlockStore",
            "azureDisk",
            "azureFile",
            "cephFS",
            "cinder",
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "fc",
            "flexVolume",
            "flocker",
            "gcePersistentDisk",
            "gitRepo",
            "glusterfs",
            "hostPath",
            "iscsi",
            "nfs",
            "persistentVolumeClaim",
            "photonPersistentDisk",
            "portworxVolume",
            "projected",
            "quobyte",
            "rbd",
            "scaleIO",
            "secret",
            "storageos",
            "vsphereVolume",
        )
    )
)
# A sysctl whose last part may end with a wildcard.
_SYSCTL_PATTERN = rf"({SYSCTL_SEGMENT}\.)*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]"
_match_sysctl_pattern = re.compile(_SYSCTL_PATTERN).fullmatch


def _annotations(annotations: Mapping[str, str]) -> Errors:
    errors: Errors = []
    for key, profiles in (
        (_APPARMOR_DEFAULT, (annotations.get(_APPARMOR_DEFAULT, ""),)),
        (_APPARMOR_ALLOWED, annotations.get(_APPARMOR_ALLOWED, "").split(",")),
    ):
        problems = filter(None, map(apparmor_problem, profiles))
        errors += [
            invalid(f"metadata.annotations[{key}]", annotations[key], text) for text in problems
        ]
    if annotations.get(_SECCOMP_DEFAULT):
        check_seccomp_name(
            annotations[_SECCOMP_DEFAULT], f"metadata.annotations[{_SECCOMP_DEFAULT}]", errors
        )
    if annotations.get(_SECCOMP_ALLOWED):
        for profile in annotations[_SECCOMP_ALLOWED].split(","):
            if profile != _ALL:
                check_seccomp_name(profile, f"metadata.annotations[{_SECCOMP_ALLOWED}]", errors)
    return errors


def _ranges(ranges: Sequence[Mapping[str, int]], path: str) -> Errors:
    errors: Errors = []
    for i, bounds in enumerate(ranges):
        low, high = bounds.get("min", 0), bounds.get("max", 0)
        if low < 0:
            errors.append(invalid(f"{path}[{i}].min", low, "min cannot be negative"))
        if high < 0:
            errors.append(invalid(f"{path}[{i}].max", high, "max cannot be negative"))
        if low > high:
            errors.append(invalid(f"{path}[{i}].min", low, "min cannot be greater than max"))
    return errors


def _strategy(spec: Object, name: str, supported: Sequence[str]) -> Errors:
    strategy, path = spec.get(name) or {}, f"spec.{name}"
    rule = strategy.get("rule", "")
    errors = [] if rule in supported else [not_supported(f"{path}.rule", rule, supported)]
    return errors + _ranges(strategy.get("ranges") or (), f"{path}.ranges")


def _run_as_group(strategy: Mapping[str, Any] | None) -> Errors:
    if strategy is None:
        return []
    rule, ranges, path = (
        strategy.get("rule", ""),
        strategy.get("ranges") or (),
        "spec.runAsGroup.ranges",
    )
    if rule not in _GROUP_RULES:
        return [not_supported("spec.runAsGroup.rule", rule, _GROUP_RULES)]
    if rule == "RunAsAny":
        return (
            [invalid(path, go_dump("[]policy.IDRange", ranges), "Ranges must be empty")]
            if ranges
            else []
        )
    if not ranges:
        return [
            invalid(path, go_dump("[]policy.IDRange", ranges), "must provide at least one range")
        ]
    return _ranges(ranges, path)


def _capabilities(spec: Object) -> Errors:
    """These paths do not begin with `spec`."""
    errors: Errors = []
    dropped, allowed = (
        spec.get("requiredDropCapabilities") or (),
        spec.get("allowedCapabilities") or (),
    )
    if dropped and _ALL in allowed:
        errors.append(
            invalid(
                "requiredDropCapabilities",
                go_dump("[]core.Capability", dropped),
                "must be empty when all capabilities are allowed by a wildcard",
            )
        )
    for name in ("defaultAddCapabilities", "allowedCapabilities"):
        errors += [
            invalid(
                name, capability, f"capability is listed in {name} and requiredDropCapabilities"
            )
            for capability in spec.get(name) or ()
            if capability in dropped
        ]
    return errors


def _host_paths(paths: Sequence[Mapping[str, Any]]) -> Errors:
    errors: Errors = []
    for i, target in enumerate(paths):
        where, prefix = f"spec.allowedHostPaths[{i}]", target.get("pathPrefix", "")
        if not prefix:
            return [*errors, required(where, "is required")]
        if ".." in prefix.split("/"):
            errors.append(invalid(where, prefix, "must not contain '..'"))
    return errors


def _sysctls(sysctls: Sequence[str], path: str) -> Errors:
    errors: Errors = []
    covers_all = False
    for i, name in enumerate(sysctls):
        if not name:
            errors.append(invalid(f"{path}[{i}]", name, "empty sysctl not allowed"))
        elif byte_len(name) > SYSCTL_LIMIT or _match_sysctl_pattern(name) is None:
            text = f"must have at most {SYSCTL_LIMIT} characters and match regex {_SYSCTL_PATTERN}"
            errors.append(invalid(f"{path}[{i}]", name, text))
        elif name[0] == _ALL:
            covers_all = True
    if covers_all and len(sysctls) > 1:
        errors.append(
            forbidden(f"{path}.items", "if '*' is present, must not specify other sysctls")
        )
    return errors


def _overlapping_sysctls(allowed: Sequence[str], banned: Sequence[str]) -> Errors:
    errors: Errors = []
    for i, one in enumerate(allowed):
        for j, other in enumerate(banned):
            if _covers(other, one):
                errors.append(
                    invalid(f"spec.allowedUnsafeSysctls[{i}]", one, f"sysctl overlaps with {other}")
                )
            elif _covers(one, other):
                errors.append(
                    invalid(f"spec.forbiddenSysctls[{j}]", other, f"sysctl overlaps with {one}")
                )
    return errors


def _covers(pattern: str, name: str) -> bool:
    if not pattern.endswith(_ALL):
        return pattern == name
    return name.removesuffix(_ALL).startswith(pattern.removesuffix(_ALL))


def _runtime_class(strategy: Mapping[str, Any] | None) -> Errors:
    if strategy is None:
        return []
    errors: Errors = []
    names, default = (
        strategy.get("allowedRuntimeClassNames") or (),
        strategy.get("defaultRuntimeClassName"),
    )
    path = "spec.runtimeClass.allowedRuntimeClassNames"
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name != _ALL:
            errors += dns_subdomain(name, f"{path}[{i}]")
        if name in seen:
            errors.append(duplicate(f"{path}[{i}]", name))
        seen.add(name)
    if default is not None:
        errors += dns_subdomain(default, "spec.runtimeClass.defaultRuntimeClassName")
        if default not in names and _ALL not in names:
            errors.append(required(path, f"default {go_quote(default)} must be allowed"))
    if _ALL in names and len(names) > 1:
        text = "if '*' is present, must not specify other RuntimeClass names"
        errors.append(invalid(path, go_dump("[]string", names), text))
    return errors


def _spec(spec: Object) -> Errors:
    errors = _strategy(spec, "runAsUser", _USER_RULES) + _run_as_group(spec.get("runAsGroup"))
    errors += _strategy(spec, "seLinux", _SELINUX_RULES)
    errors += _strategy(spec, "supplementalGroups", _SHARED_GROUP_RULES)
    errors += _strategy(spec, "fsGroup", _SHARED_GROUP_RULES)
    errors += [
        not_supported("spec.volumes", volume, _VOLUMES)
        for volume in spec.get("volumes") or ()
        if volume not in _VOLUMES
    ]
    errors += _capabilities(spec)
    if spec.get("defaultAllowPrivilegeEscalation") and not spec.get("allowPrivilegeEscalation"):
        errors.append(
            invalid(
                "spec.defaultAllowPrivilegeEscalation",
                True,
                "Cannot set DefaultAllowPrivilegeEscalation to true without also setting "
                "AllowPrivilegeEscalation to true",
            )
        )
    errors += [
        not_supported(f"spec.allowedProcMountTypes[{i}]", kind, PROC_MOUNTS)
        for i, kind in enumerate(spec.get("allowedProcMountTypes") or ())
        if kind not in PROC_MOUNTS
    ]
    errors += _host_paths(spec.get("allowedHostPaths") or ())
    errors += [
        required(f"spec.allowedFlexVolumes.allowedFlexVolumes[{i}].driver", "must specify a driver")
        for i, volume in enumerate(spec.get("allowedFlexVolumes") or ())
        if not volume.get("driver")
    ]
    for i, driver in enumerate(spec.get("allowedCSIDrivers") or ()):
        errors += csi_driver_name(
            driver.get("name", ""), f"spec.allowedCSIDrivers.allowedCSIDriver[{i}].name"
        )
    unsafe, banned = spec.get("allowedUnsafeSysctls") or (), spec.get("forbiddenSysctls") or ()
    errors += _sysctls(unsafe, "spec.allowedUnsafeSysctls") + _sysctls(
        banned, "spec.forbiddenSysctls"
    )
    return errors + _overlapping_sysctls(unsafe, banned) + _runtime_class(spec.get("runtimeClass"))


def _policy(obj: Object) -> Errors:
    return _annotations(obj["metadata"].get("annotations") or {}) + _spec(obj.get("spec") or {})


def validate_policy(obj: Object) -> Errors:
    return validate_object_meta(obj["metadata"], False, name_is_dns_subdomain) + _policy(obj)


def validate_pod_security_policy_update(new: Object, old: Object) -> Errors:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + _policy(new)


VALIDATORS = {
    "policy/PodSecurityPolicy": ValidationRules(
        validate_policy, validate_pod_security_policy_update
    )
}
