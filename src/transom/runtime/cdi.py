"""Container Device Interface: finds devices by name in the specification files of a node, and adds
what they describe to a container.

The files are untrusted: a pod with a hostPath can write them. So only environment variables, mounts
of the node's files and devices that the runtime may give to containers are added; hooks, which are
programs of the node, are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery import goyaml
from transom.machines.api import Files
from transom.machines.smallfiles import LARGEST_YAML, list_small_directory, read_small_file
from transom.runtime.api import ContainerConfig, Mount

FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")  # the later one has priority
_MOST_FILES: Final = 512
_NEEDS_HOST: Final = ("hooks",)
_PERMISSIONS: Final = "rwm"
Edits = Mapping[str, Any]


class CdiFailure(Exception):
    """The text is containerd's."""


class _Device(NamedTuple):
    spec: str  # the path of its file
    common: Edits
    own: Edits


def inject_cdi_devices(files: Files, config: ContainerConfig) -> ContainerConfig:
    """The configuration with what its CDI devices need. Raises CdiFailure."""
    if not config.cdi_devices:
        return config
    known = _devices(files)
    missing = [name for name in config.cdi_devices if name not in known]
    if missing:
        raise CdiFailure(
            "failed to generate spec: CDI device injection failed: unresolvable CDI devices "
            f"{', '.join(missing)}"
        )
    found = [known[name] for name in dict.fromkeys(config.cdi_devices)]
    specs = {device.spec: device.common for device in found}
    return _apply(config, [*specs.values(), *(device.own for device in found)])


def _devices(files: Files) -> dict[str, _Device]:
    """By name. A device that two files of one directory define is in conflict, and left out."""
    out: dict[str, _Device] = {}
    for folder in FOLDERS:
        here: dict[str, _Device] = {}
        conflicts: set[str] = set()
        for path, spec in _specs(files, folder):
            for name, device in _spec_devices(path, spec):
                if name in here:
                    conflicts.add(name)
                here[name] = device
        out |= here
        for name in conflicts:
            del out[name]
    return out


def _specs(files: Files, folder: str) -> Iterator[tuple[str, Any]]:
    try:
        names = list_small_directory(files, folder, _MOST_FILES)
    except OSError:
        return
    for name in names:
        if not name.endswith((".json", ".yaml")):
            continue
        path = f"{folder}/{name}"
        try:
            if name.endswith(".json"):
                yield path, json.loads(read_small_file(files, path))
            else:
                yield path, goyaml.load_yaml(read_small_file(files, path, LARGEST_YAML))
        except (OSError, ValueError, RecursionError):
            continue  # containerd ignores files that it cannot read


def _spec_devices(path: str, spec: Any) -> Iterator[tuple[str, _Device]]:
    if not isinstance(spec, dict) or not isinstance(spec.get("kind"), str):
        return
    common = spec.get("containerEdits")
    for device in _rows(spec.get("devices")):
        if isinstance(device.get("name"), str):
            edits = device.get("containerEdits")
            yield (
                f"{spec['kind']}={device['name']}",
                _Device(path, _edits(common), _edits(edits)),
            )


def _edits(value: Any) -> Edits:
    return value if isinstance(value, dict) else {}


def _rows(value: Any) -> Iterable[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else ()


def _apply(config: ContainerConfig, edits: Sequence[Edits]) -> ContainerConfig:
    variables, mounts, devices = dict(config.env), [*config.mounts], [*config.devices]
    for edit in edits:
        for part in _NEEDS_HOST:
            if edit.get(part):
                raise CdiFailure(
                    f"failed to generate spec: CDI device injection failed: {part} of CDI devices "
                    "are not supported on this node"
                )
        for text in edit.get("env") or ():
            name, equals, value = str(text).partition("=")
            if equals:
                variables[name] = value
        mounts += [_mount(row) for row in _rows(edit.get("mounts"))]
        devices += [_device(row) for row in _rows(edit.get("deviceNodes"))]
    return replace(
        config, env=tuple(variables.items()), mounts=tuple(mounts), devices=tuple(devices)
    )


def _mount(row: Mapping[str, Any]) -> Mount:
    options = row.get("options")
    return Mount(
        container_path=_text(row, "containerPath"),
        host_path=_text(row, "hostPath"),
        read_only=isinstance(options, list) and "ro" in options,
    )


def _device(row: Mapping[str, Any]) -> str:
    """As in `ContainerConfig.devices`. Its numbers are those of the node's file, whatever the
    specification states.
    """
    path = _text(row, "path")
    permissions = row.get("permissions")
    shown = permissions if isinstance(permissions, str) and permissions else _PERMISSIONS
    if ":" in path or set(shown) - set(_PERMISSIONS):
        raise CdiFailure(
            "failed to generate spec: CDI device injection failed: invalid device node"
        )
    return f"{row.get('hostPath') or path}:{path}:{shown}"


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.startswith("/"):
        raise CdiFailure(f"failed to generate spec: CDI device injection failed: invalid {name}")
    return value
