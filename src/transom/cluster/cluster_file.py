"""The cluster file of `transom up --config cluster.yaml`: the options of the cluster, and each node
in detail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cluster.access import read_access_section
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kit.user_errors import UserError
from transom.machinery import goyaml
from transom.node import network_settings

if TYPE_CHECKING:
    import yaml
else:
    yaml = lazy_import("yaml")

API_VERSION, KIND = "transom.dev/v1", "Cluster"
_FIELDS = {
    "apiVersion": str,
    "kind": str,
    "release": str,
    "featureGates": dict,
    "nodes": list,
    "scheduler": dict,
    "images": str,
    "engine": str,
    "windows": dict,
    "network": dict,
    "podCIDR": str,
    "serviceCIDR": str,
    "apiServer": dict,
}


class WindowsOptions(NamedTuple):
    """None: not given."""

    warn: bool | None = None
    reject: tuple[str, ...] | None = None  # ids or patterns; () resets the list


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """None: not set in the file."""

    release: str | None = None
    feature_gates: tuple[str, ...] | None = None
    nodes: list[Any] | None = None
    scheduler: dict[str, Any] | None = None  # a KubeSchedulerConfiguration
    windows: WindowsOptions = field(default_factory=WindowsOptions)
    images: Path | None = None  # an image catalogue in addition to ours
    engine: str | None = None
    # keys are the names of NetworkSettings
    network: Mapping[str, Any] = field(default_factory=dict)
    pod_cidr: str | None = None
    service_cidr: str | None = None
    # flags of kube-apiserver for authentication and authorization
    api_server: Mapping[str, str] = field(default_factory=dict)


def read_cluster_file(path: Path) -> ClusterFile:
    try:
        content = goyaml.load_yaml(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (goyaml.YamlError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise UserError(
            f"{path} is not a cluster file",
            f"it must begin with: apiVersion: {API_VERSION}, kind: {KIND}",
        )
    return _checked(path, content)


def _placed(path: Path, row: Any) -> Any:
    """Resolves a node's folders relative to the cluster file."""
    if isinstance(row, dict) and isinstance(row.get("staticPods"), str):
        return {**row, "staticPods": str((path.parent / row["staticPods"]).absolute())}
    return row


def _checked(path: Path, content: dict[str, Any]) -> ClusterFile:
    if (content.get("apiVersion"), content.get("kind")) != (API_VERSION, KIND):
        raise UserError(
            (
                f"{path} is not a cluster file: it must have apiVersion: {API_VERSION} and kind: "
                f"{KIND}"
            ),
            "see docs/nodes.md for a complete example",
        )
    for name, value in content.items():
        wanted = _FIELDS.get(name)
        if wanted is None:
            raise UserError(
                f"{path} has the unknown field {name!r}", f"known are {', '.join(_FIELDS)}"
            )
        if wanted is str and isinstance(value, (int, float)) and name == "release":
            raise UserError(
                f"{path}: release must be text", f'put it in quotes: release: "{value}"'
            )
        if not isinstance(value, wanted):
            raise UserError(
                f"{path}: {name} must be a {'mapping' if wanted is dict else wanted.__name__}"
            )
    gates = content.get("featureGates")
    images = content.get("images")
    return ClusterFile(
        release=content.get("release"),
        feature_gates=None
        if gates is None
        else tuple(f"{k}={str(v).lower()}" for k, v in gates.items()),
        nodes=None
        if content.get("nodes") is None
        else [_placed(path, row) for row in content["nodes"]],
        scheduler=content.get("scheduler"),
        windows=_windows_options(content.get("windows") or {}),
        network=network_settings.network_options_from_file(content.get("network") or {}),
        images=None if images is None else (path.parent / images).absolute(),
        engine=content.get("engine"),
        pod_cidr=content.get("podCIDR"),
        service_cidr=content.get("serviceCIDR"),
        api_server=read_access_section(content.get("apiServer") or {}, path.parent),
    )


def _windows_options(content: Any) -> WindowsOptions:
    """Reads the field `windows` of the cluster file."""
    unknown = set(content) - {"warn", "reject"}
    warn, reject = content.get("warn"), content.get("reject")
    if (
        unknown
        or not isinstance(warn, bool | None)
        or not isinstance(reject, list | None)
        or (not all(isinstance(id, str) for id in reject or ()))
    ):
        raise UserError(
            "the section windows of the cluster file is not valid",
            'its fields are warn: true|false and reject: ["WIN-STO-*", ...]',
        )
    return WindowsOptions(warn, None if reject is None else tuple(reject))
