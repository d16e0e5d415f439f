"""Annotations with a meaning on pods: mirror pods, legacy tolerations, seccomp and AppArmor
profiles.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from transom.kit.goquote import go_quote
from transom.machinery.field import forbidden, invalid
from transom.machinery.gojson import syntax_error
from transom.machinery.podutil import containers_with_path, may_have_profiles
from transom.machinery.validation.common import check_descending_path
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions
from transom.machinery.validation.rules import Errors
from transom.machinery.validation.scheduling import check_tolerations

MIRROR = "kubernetes.io/config.mirror"
_TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_LOCALHOST = "localhost/"
_RUNTIME_DEFAULT = ("runtime/default", "docker/default")
_UNCONFINED = "unconfined"


def check_pod_annotations(
    annotations: dict[str, str],
    spec: dict[str, Any],
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    if MIRROR in annotations and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        errs.append(invalid(f"{path}[{MIRROR}]", annotations[MIRROR], text))
    if annotations.get(_TOLERATIONS):
        _check_toleration_annotation(annotations[_TOLERATIONS], path, errs, options)
    cost = annotations.get(_DELETION_COST)
    if cost is not None and options.checks_deletion_cost and not is_deletion_cost(cost):
        errs.append(invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    if not may_have_profiles(annotations):
        return
    if _SECCOMP_POD in annotations:
        check_seccomp_name(annotations[_SECCOMP_POD], f"{path}.{_SECCOMP_POD}", errs)
    for key, value in annotations.items():
        if key.startswith(_SECCOMP_CONTAINER):
            check_seccomp_name(value, f"{path}.{key}", errs)
    for key, value in annotations.items():
        if key.startswith(_APPARMOR):
            _check_apparmor(key.removeprefix(_APPARMOR), value, spec, f"{path}[{key}]", errs)


_match_cost = re.compile("[-+]?[0-9]{1,20}").fullmatch


def is_deletion_cost(text: str) -> bool:
    """A 32-bit integer without a plus sign or leading zeros."""
    if not _match_cost(text) or text.startswith("+") or (text[0] == "0" and text != "0"):
        return False
    return -(1 << 31) <= int(text) < 1 << 31


def _check_toleration_annotation(text: str, path: str, errs: Errors, options: PodOptions) -> None:
    problem = syntax_error(text.encode())
    tolerations: Any = None
    if problem is None:
        tolerations = orjson.loads(text)
        problem = _type_error(tolerations)
    if problem is not None:
        errs.append(invalid(path, _TOLERATIONS, problem))
    else:
        check_tolerations(tolerations or (), f"{path}.{_TOLERATIONS}", errs, options)


def _type_error(value: Any) -> str | None:
    """encoding/json's message if the value is not a list of objects."""
    if value is None:
        return None
    if not isinstance(value, list):
        return f"json: cannot unmarshal {_json_type(value)} into Go value of type []core.Toleration"
    for item in value:
        if not isinstance(item, dict):
            return (
                f"json: cannot unmarshal {_json_type(item)} into Go value of type core.Toleration"
            )
    return None


def _json_type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "bool"}
    return names.get(type(value), "number")


def check_seccomp_name(name: str, path: str, errs: Errors) -> None:
    if name in _RUNTIME_DEFAULT or name == _UNCONFINED:
        return
    if name.startswith(_LOCALHOST):
        check_descending_path(name.removeprefix(_LOCALHOST), path, errs)
    else:
        errs.append(invalid(path, name, "must be a valid seccomp profile"))


def _check_apparmor(
    container: str, profile: str, spec: dict[str, Any], path: str, errs: Errors
) -> None:
    if not any(c.get("name") == container for c, _ in containers_with_path(spec, "")):
        errs.append(invalid(path, container, "container not found"))
    if problem := apparmor_problem(profile):
        errs.append(invalid(path, profile, problem))


def apparmor_problem(profile: str) -> str:
    """Why this is not a valid profile name; empty if it is."""
    if not profile or profile in ("runtime/default", _UNCONFINED) or profile.startswith(_LOCALHOST):
        return ""
    return f"invalid AppArmor profile name: {go_quote(profile)}"


def check_annotation_updates(
    new: dict[str, str],
    old: dict[str, str],
    spec: dict[str, Any],
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    """Annotations that must not be changed, removed or added after creation."""
    for key, value in old.items():
        if new.get(key) != value:
            _check_fixed(key, "remove or update", path, errs)
    for key in new:
        if key not in old:
            _check_fixed(key, "add", path, errs)
    check_pod_annotations(new, spec, path, errs, options)


def _check_fixed(key: str, verb: str, path: str, errs: Errors) -> None:
    if key.startswith(_APPARMOR):
        errs.append(forbidden(f"{path}[{key}]", f"may not {verb} AppArmor annotations"))
    elif key == MIRROR:
        errs.append(forbidden(f"{path}[{key}]", f"may not {verb} mirror pod annotation"))


def check_seccomp_agrees(
    annotations: dict[str, str], spec: dict[str, Any], path: str, errs: Errors
) -> None:
    """An annotation and the field that replaced it must agree."""
    if not may_have_profiles(annotations):
        return
    profile = (spec.get("securityContext") or {}).get("seccompProfile")
    if profile is not None and _SECCOMP_POD in annotations:
        _check_same(
            annotations[_SECCOMP_POD], profile, f"{path}.securityContext.seccompProfile", errs
        )
    for container, where in containers_with_path(spec, path):
        profile = (container.get("securityContext") or {}).get("seccompProfile")
        key = _SECCOMP_CONTAINER + container.get("name", "")
        if profile is not None and key in annotations:
            _check_same(annotations[key], profile, f"{where}.securityContext.seccompProfile", errs)


def _check_same(annotation: str, profile: dict[str, Any], path: str, errs: Errors) -> None:
    kind = profile.get("type")
    if kind == "Localhost" and annotation.startswith(_LOCALHOST):
        if annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
            text = "seccomp profile in annotation and field must match"
            errs.append(forbidden(f"{path}.localhostProfile", text))
        return
    same = {
        "Unconfined": annotation == _UNCONFINED,
        "RuntimeDefault": annotation in _RUNTIME_DEFAULT,
        "Localhost": False,
    }
    if not same.get(kind or "", True):
        errs.append(forbidden(f"{path}.type", "seccomp type in annotation and field must match"))


def check_apparmor_agrees(
    annotations: dict[str, str], spec: dict[str, Any], path: str, errs: Errors
) -> None:
    """An annotation and the field that replaced it must agree, except in pods for Windows."""
    if not may_have_profiles(annotations) or (spec.get("os") or {}).get("name") == "windows":
        return
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container, where in containers_with_path(spec, path):
        profile = (container.get("securityContext") or {}).get("appArmorProfile", of_pod)
        annotation = annotations.get(_APPARMOR + container.get("name", ""))
        if profile is None or annotation is None:
            continue
        at, kind = f"{where}.securityContext.appArmorProfile", profile.get("type")
        if kind == "Localhost" and annotation.startswith(_LOCALHOST):
            if annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
                text = "apparmor profile in annotation and field must match"
                errs.append(forbidden(f"{at}.localhostProfile", text))
            continue
        same = {
            "Unconfined": annotation == _UNCONFINED,
            "RuntimeDefault": annotation == "runtime/default",
            "Localhost": False,
        }
        if not same.get(kind or "", True):
            text = "apparmor type in annotation and field must match"
            errs.append(forbidden(f"{at}.type", text))
