"""Volume mounts and devices of a container, checked against the volumes of its pod."""

from __future__ import annotations

from typing import Any

from transom.machinery.field import forbidden, invalid, not_found, not_supported, required
from transom.machinery.validation.common import check_descending_path
from transom.machinery.validation.rules import Errors

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")

Volumes = dict[str, dict[str, Any]]


def check_mounts_and_devices(
    container: dict[str, Any],
    volumes: Volumes,
    path: str,
    errs: Errors,
    image_paths: bool = False,
) -> None:
    """`image_paths`: a part of an image volume may be mounted."""
    mounts, devices = container.get("volumeMounts"), container.get("volumeDevices")
    if mounts:
        taken = {device.get("name", ""): device.get("devicePath", "") for device in devices or ()}
        privileged = _is_privileged(container)
        where = f"{path}.volumeMounts"
        _check_mounts(mounts, taken, volumes, privileged, where, errs, image_paths)
    if devices:
        taken = {mount.get("name", ""): mount.get("mountPath", "") for mount in mounts or ()}
        _check_devices(devices, taken, volumes, f"{path}.volumeDevices", errs)


def _is_privileged(container: dict[str, Any]) -> bool:
    return bool((container.get("securityContext") or {}).get("privileged"))


def _check_mounts(
    mounts: list[dict[str, Any]],
    devices: dict[str, str],
    volumes: Volumes,
    privileged: bool,
    path: str,
    errs: Errors,
    image_paths: bool,
) -> None:
    seen: set[str] = set()
    for i, mount in enumerate(mounts):
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errs.append(required(f"{path}[{i}].name"))
        if name not in volumes:
            errs.append(not_found(f"{path}[{i}].name", name))
        if not target:
            errs.append(required(f"{path}[{i}].mountPath"))
        if target in seen:
            errs.append(invalid(f"{path}[{i}].mountPath", target, "must be unique"))
        seen.add(target)
        if devices:
            if name in devices:
                errs.append(
                    invalid(f"{path}[{i}].name", name, "must not already exist in volumeDevices")
                )
            if target in devices.values():
                text = "must not already exist as a path in volumeDevices"
                errs.append(invalid(f"{path}[{i}].mountPath", target, text))
        of_image = not image_paths and "image" in volumes.get(name, ())
        _check_sub_paths(mount, of_image, f"{path}[{i}]", path, errs)
        propagation = mount.get("mountPropagation")
        if propagation is not None:
            _check_propagation(propagation, privileged, f"{path}.mountPropagation", errs)
        if "recursiveReadOnly" in mount:
            _check_recursive(mount, f"{path}.recursiveReadOnly", errs)


def _check_sub_paths(
    mount: dict[str, Any], of_image: bool, path: str, list_path: str, errs: Errors
) -> None:
    sub_path, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if of_image:
        for name, value in (("subPath", sub_path), ("subPathExpr", expression)):
            if value:
                errs.append(invalid(f"{path}.{name}", value, "not allowed in image volume sources"))
    # Kubernetes also omits the index of the mount in these paths.
    if sub_path:
        check_descending_path(sub_path, f"{list_path}.subPath", errs)
    if expression:
        if sub_path:
            text = "subPathExpr and subPath are mutually exclusive"
            errs.append(invalid(f"{path}.subPathExpr", expression, text))
        check_descending_path(expression, f"{list_path}.subPathExpr", errs)


def _check_propagation(propagation: str, privileged: bool, path: str, errs: Errors) -> None:
    if propagation not in _PROPAGATIONS:
        errs.append(not_supported(path, propagation, _PROPAGATIONS))
    if propagation == "Bidirectional" and not privileged:
        text = "Bidirectional mount propagation is available only to privileged containers"
        errs.append(forbidden(path, text))


def _check_recursive(mount: dict[str, Any], path: str, errs: Errors) -> None:
    value = mount["recursiveReadOnly"]
    if value not in _RECURSIVE:
        errs.append(not_supported(path, value, _RECURSIVE))
    elif value != "Disabled":
        if not mount.get("readOnly"):
            errs.append(forbidden(path, "may only be specified when readOnly is true"))
        if mount.get("mountPropagation", "None") != "None":
            errs.append(
                forbidden(
                    path, "may only be specified when mountPropagation is None or not specified"
                )
            )


def _check_devices(
    devices: list[dict[str, Any]], mounts: dict[str, str], volumes: Volumes, path: str, errs: Errors
) -> None:
    names: set[str] = set()
    targets: set[str] = set()
    for i, device in enumerate(devices):
        name, target = device.get("name", ""), device.get("devicePath", "")
        name_path, target_path = f"{path}[{i}].name", f"{path}[{i}].devicePath"
        if not name:
            errs.append(required(name_path))
        if name in names:
            errs.append(invalid(name_path, name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            errs.append(not_found(name_path, name))
        elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
            text = "can only use volume source type of PersistentVolumeClaim for block mode"
            errs.append(invalid(name_path, name, text))
        if not target:
            errs.append(required(target_path))
        if target in targets:
            errs.append(invalid(target_path, target, "must be unique"))
        if ".." in target.split("/"):
            errs.append(invalid(target_path, target, "can not contain backsteps ('..')"))
        else:
            targets.add(target)
        if name in mounts:
            errs.append(invalid(name_path, name, "must not already exist in volumeMounts"))
        if target in mounts.values():
            errs.append(
                invalid(target_path, target, "must not already exist as a path in volumeMounts")
            )
        if name:
            names.add(name)
