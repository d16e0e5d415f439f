"""The Windows nodes that objects are checked against: those of a live cluster, or those described
by options.

A cluster with Windows nodes always has Linux nodes too, because the control plane runs there. So a
description with Windows nodes describes a mixed cluster; without one, only the manifests themselves
count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.tolerations import find_toleration
from transom.windows import builds
from transom.windows.records import Network, NodeTarget, Release, Runtime
from transom.windows.releases import DEFAULT as DEFAULT_RELEASE
from transom.windows.releases import release_facts
from transom.windows.targeting import BUILD_LABEL, OS_LABELS

_RELEASE: Final = re.compile(r"v?([0-9]+)\.([0-9]+)")
_KERNEL: Final = re.compile(r"10\.0\.([0-9]+)(?:\.([0-9]+))?")
_FLANNEL: Final = "flannel.alpha.coreos.com/backend-type"
_FLANNEL_MODES: Final[Mapping[str, Network]] = {"vxlan": "overlay", "host-gw": "l2bridge"}


class NodeTaint(NamedTuple):
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class WindowsNode:
    """A Windows node. A node from options has no name."""

    target: NodeTarget
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[NodeTaint, ...] = ()


class NodeGroup(NamedTuple):
    """Identical Windows nodes."""

    target: NodeTarget
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetNodes:
    nodes: tuple[WindowsNode, ...]  # of Windows
    mixed: bool | None = None  # whether there are nodes of both systems; None if unknown
    linux: bool = True
    live: bool = False

    @property
    def release(self) -> Release:
        return max((node.target.release for node in self.nodes), default=DEFAULT_RELEASE)

    def groups(self, spec: Mapping[str, Any]) -> list[NodeGroup]:
        """The Windows nodes that match a pod's selector, identical ones grouped. Undescribed nodes
        match any selector, and have the build in it.
        """
        selector = spec.get("nodeSelector")
        wanted = {str(k): str(v) for k, v in selector.items()} if isinstance(selector, dict) else {}
        found: dict[NodeTarget, list[str]] = {}
        for node in self.nodes:
            target = node.target
            if node.name:
                if any(
                    node.labels.get(key, value if key in OS_LABELS else "") != value
                    for key, value in wanted.items()
                ):
                    continue
            elif target.build is None and BUILD_LABEL in wanted:
                build = builds.build_by_name(wanted[BUILD_LABEL])
                target = target._replace(build=build.number if build else None)
            found.setdefault(target, []).append(node.name)
        return [
            NodeGroup(target, tuple(name for name in names if name))
            for target, names in found.items()
        ]

    def admits(self, spec: Mapping[str, Any]) -> bool:
        """Whether the taints of a Windows node admit a pod. Only nodes of a cluster have known
        taints.
        """
        named = [node for node in self.nodes if node.name]
        return not named or any(
            all(tolerates_taints(taint, spec) for taint in node.taints) for node in named
        )


def target_nodes_from_options(
    release: Release | None = None,
    build: int | None = None,
    runtime: Runtime | None = None,
    network: Network | None = None,
    features: Iterable[str] = (),
    mixed: bool | None = None,
) -> TargetNodes:
    """From options."""
    if mixed is None and (build is not None or runtime is not None or network is not None):
        mixed = True
    release = release or DEFAULT_RELEASE
    target = NodeTarget(
        release, build, runtime or _runtime_of(release), network, frozenset(features)
    )
    return TargetNodes((WindowsNode(target),), mixed)


def target_nodes_of_cluster(
    nodes: Iterable[Mapping[str, Any]], features: Iterable[str] = (), network: Network | None = None
) -> TargetNodes:
    """From the Node objects of a cluster; missing facts can be passed."""
    found: list[WindowsNode] = []
    linux = False
    for node in nodes:
        metadata, info = (
            node.get("metadata") or {},
            (node.get("status") or {}).get("nodeInfo") or {},
        )
        labels = metadata.get("labels") or {}
        os = info.get("operatingSystem") or labels.get(OS_LABELS[0], "")
        if os != "windows":
            linux = linux or os == "linux"
            continue
        backend = (metadata.get("annotations") or {}).get(_FLANNEL, "")
        target = NodeTarget(
            release=parse_target_release(info.get("kubeletVersion", "")) or DEFAULT_RELEASE,
            **_kernel(info.get("kernelVersion", "")),
            runtime=_named_runtime(info.get("containerRuntimeVersion", "")),
            network=network or _FLANNEL_MODES.get(backend),
            features=frozenset(features),
        )
        taints = tuple(
            NodeTaint(taint.get("key", ""), taint.get("value", ""), taint.get("effect", ""))
            for taint in (node.get("spec") or {}).get("taints") or ()
            if taint.get("effect") in ("NoSchedule", "NoExecute")
            and not taint.get("key", "").startswith("node.kubernetes.io/")
        )
        found.append(WindowsNode(target, metadata.get("name", ""), labels, taints))
    return TargetNodes(tuple(found), bool(found) and linux, linux, live=True)


def parse_target_release(text: str) -> Release | None:
    """`1.20`, `v1.20.15`, `v1.27.3-gke.100`."""
    match = _RELEASE.match(text.strip())
    return (int(match[1]), int(match[2])) if match else None


def tolerates_taints(taint: NodeTaint, spec: Mapping[str, Any]) -> bool:
    """`spec` may be from an unvalidated manifest."""
    tolerations = spec.get("tolerations")
    given = tolerations if isinstance(tolerations, list) else ()
    return (
        find_toleration((one for one in given if isinstance(one, dict)), taint._asdict())
        is not None
    )


def _runtime_of(release: Release) -> Runtime | None:
    """The only Windows runtime of a release, if there is just one."""
    known = release_facts(release)
    return known.runtime if len(known.runtimes()) == 1 else None


def _named_runtime(version: str) -> Runtime | None:
    name = version.partition(":")[0]
    return "docker" if name == "docker" else "containerd" if name == "containerd" else None


def _kernel(version: str) -> dict[str, int | None]:
    match = _KERNEL.match(version)
    if match is None:
        return {"build": None, "revision": None}
    return {"build": int(match[1]), "revision": int(match[2]) if match[2] else None}
