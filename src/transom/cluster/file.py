"""The cluster file: `transom up --config cluster.yaml` says in one place what the options say, and each node in detail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transom.cluster import netconfig
from transom.cluster.errors import ClusterError
from transom.cluster.windows import Windows, from_file

API_VERSION, KIND = "transom.dev/v1", "Cluster"
_FIELDS = {"apiVersion": str, "kind": str, "release": str, "featureGates": dict, "nodes": list, "scheduler": dict,
           "images": str, "engine": str, "windows": dict, "network": dict, "podCIDR": str, "serviceCIDR": str}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """None: the file does not say."""

    release: str | None = None
    feature_gates: tuple[str, ...] | None = None
    nodes: list[Any] | None = None
    scheduler: dict[str, Any] | None = None  # a KubeSchedulerConfiguration
    windows: Windows = field(default_factory=Windows)
    images: Path | None = None  # a catalogue of images beside ours
    engine: str | None = None
    network: Mapping[str, Any] = field(default_factory=dict)  # by the names of NetworkSettings
    pod_cidr: str | None = None
    service_cidr: str | None = None


def read(path: Path) -> ClusterFile:
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ClusterError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ClusterError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ClusterError(f"{path} is not a cluster file", f"it begins with: apiVersion: {API_VERSION}, kind: {KIND}")
    return _checked(path, content)


def _placed(path: Path, row: Any) -> Any:
    """Folders that a node names are found from where the file is."""
    if isinstance(row, dict) and isinstance(row.get("staticPods"), str):
        return {**row, "staticPods": str((path.parent / row["staticPods"]).absolute())}
    return row


def _checked(path: Path, content: dict[str, Any]) -> ClusterFile:
    if (content.get("apiVersion"), content.get("kind")) != (API_VERSION, KIND):
        raise ClusterError(
            f"{path} is not a cluster file: it must have apiVersion: {API_VERSION} and kind: {KIND}",
            "docs/nodes.md shows a whole one",
        )
    for name, value in content.items():
        wanted = _FIELDS.get(name)
        if wanted is None:
            raise ClusterError(f"{path} has the unknown field {name!r}", f"known are {', '.join(_FIELDS)}")
        if wanted is str and isinstance(value, (int, float)) and name == "release":
            raise ClusterError(f"{path}: release must be text", f'put it in quotes: release: "{value}"')
        if not isinstance(value, wanted):
            raise ClusterError(f"{path}: {name} must be a {'mapping' if wanted is dict else wanted.__name__}")
    gates = content.get("featureGates")
    images = content.get("images")
    return ClusterFile(
        release=content.get("release"),
        feature_gates=None if gates is None else tuple(f"{k}={str(v).lower()}" for k, v in gates.items()),
        nodes=None if content.get("nodes") is None else [_placed(path, row) for row in content["nodes"]],
        scheduler=content.get("scheduler"),
        windows=from_file(content.get("windows") or {}),
        network=netconfig.from_file(content.get("network") or {}),
        images=None if images is None else (path.parent / images).absolute(),
        engine=content.get("engine"),
        pod_cidr=content.get("podCIDR"),
        service_cidr=content.get("serviceCIDR"),
    )
