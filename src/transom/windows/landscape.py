"""The Windows nodes that something is judged for: those of a live cluster, or such as somebody describes by options.

A cluster with Windows nodes always has Linux nodes too, because the control plane runs there. So whoever tells anything of
Windows nodes tells of a mixed cluster; without that, only what a set of manifests says of itself counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from transom.windows import builds
from transom.windows.records import Network, Release, Runtime, Target
from transom.windows.releases import DEFAULT as DEFAULT_RELEASE
from transom.windows.releases import facts
from transom.windows.targeting import BUILD_LABEL, OS_LABELS

_RELEASE: Final = re.compile(r"v?([0-9]+)\.([0-9]+)")
_KERNEL: Final = re.compile(r"10\.0\.([0-9]+)(?:\.([0-9]+))?")
_FLANNEL: Final = "flannel.alpha.coreos.com/backend-type"
_FLANNEL_MODES: Final[Mapping[str, Network]] = {"vxlan": "overlay", "host-gw": "l2bridge"}


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A Windows node. One that options describe has no name."""

    target: Target
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


class Group(NamedTuple):
    """Windows nodes that are alike."""

    target: Target
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Landscape:
    nodes: tuple[Node, ...]  # of Windows
    mixed: bool | None = None  # whether there are nodes of both systems; None if nobody said
    linux: bool = True
    live: bool = False

    @property
    def release(self) -> Release:
        return max((node.target.release for node in self.nodes), default=DEFAULT_RELEASE)

    def groups(self, spec: Mapping[str, Any]) -> list[Group]:
        """The Windows nodes that a pod's selector leaves, alike ones together. Nodes that nobody described fit any
        selector, and have the build that it names."""
        selector = spec.get("nodeSelector")
        wanted = {str(k): str(v) for k, v in selector.items()} if isinstance(selector, dict) else {}
        found: dict[Target, list[str]] = {}
        for node in self.nodes:
            target = node.target
            if node.name:
                if any(node.labels.get(key, value if key in OS_LABELS else "") != value for key, value in wanted.items()):
                    continue
            elif target.build is None and BUILD_LABEL in wanted:
                build = builds.by_name(wanted[BUILD_LABEL])
                target = target._replace(build=build.number if build else None)
            found.setdefault(target, []).append(node.name)
        return [Group(target, tuple(name for name in names if name)) for target, names in found.items()]

    def admits(self, spec: Mapping[str, Any]) -> bool:
        """Whether taints leave a Windows node to a pod. Only nodes of a cluster tell of their taints."""
        named = [node for node in self.nodes if node.name]
        return not named or any(all(tolerated(taint, spec) for taint in node.taints) for node in named)


def described(
    release: Release | None = None, build: int | None = None, runtime: Runtime | None = None,
    network: Network | None = None, features: Iterable[str] = (), mixed: bool | None = None,
) -> Landscape:
    """What options tell."""
    if mixed is None and (build is not None or runtime is not None or network is not None):
        mixed = True
    release = release or DEFAULT_RELEASE
    target = Target(release, build, runtime or _runtime_of(release), network, frozenset(features))
    return Landscape((Node(target),), mixed)


def of_nodes(nodes: Iterable[Mapping[str, Any]], features: Iterable[str] = (), network: Network | None = None) -> Landscape:
    """What the Node objects of a cluster tell; what they cannot tell may be given."""
    found: list[Node] = []
    linux = False
    for node in nodes:
        metadata, info = node.get("metadata") or {}, (node.get("status") or {}).get("nodeInfo") or {}
        labels = metadata.get("labels") or {}
        os = info.get("operatingSystem") or labels.get(OS_LABELS[0], "")
        if os != "windows":
            linux = linux or os == "linux"
            continue
        backend = (metadata.get("annotations") or {}).get(_FLANNEL, "")
        target = Target(
            release=parse_release(info.get("kubeletVersion", "")) or DEFAULT_RELEASE,
            **_kernel(info.get("kernelVersion", "")),
            runtime=_named_runtime(info.get("containerRuntimeVersion", "")),
            network=network or _FLANNEL_MODES.get(backend),
            features=frozenset(features),
        )
        taints = tuple(
            Taint(taint.get("key", ""), taint.get("value", ""), taint.get("effect", ""))
            for taint in (node.get("spec") or {}).get("taints") or ()
            if taint.get("effect") in ("NoSchedule", "NoExecute") and not taint.get("key", "").startswith("node.kubernetes.io/")
        )
        found.append(Node(target, metadata.get("name", ""), labels, taints))
    return Landscape(tuple(found), bool(found) and linux, linux, live=True)


def parse_release(text: str) -> Release | None:
    """`1.20`, `v1.20.15`, `v1.27.3-gke.100`."""
    match = _RELEASE.match(text.strip())
    return (int(match[1]), int(match[2])) if match else None


def tolerated(taint: Taint, spec: Mapping[str, Any]) -> bool:
    tolerations = spec.get("tolerations")
    return any(_tolerates(one, taint) for one in tolerations or () if isinstance(one, dict)) if isinstance(
        tolerations, list) else False


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    key, exists = toleration.get("key") or "", toleration.get("operator") == "Exists"
    if not key:
        return exists
    return key == taint.key and (exists or (toleration.get("value") or "") == taint.value)


def _runtime_of(release: Release) -> Runtime | None:
    """The only runtime that a release has on Windows, if there is one."""
    known = facts(release)
    return known.runtime if len(known.runtimes()) == 1 else None


def _named_runtime(version: str) -> Runtime | None:
    name = version.partition(":")[0]
    return "docker" if name == "docker" else "containerd" if name == "containerd" else None


def _kernel(version: str) -> dict[str, int | None]:
    match = _KERNEL.match(version)
    if match is None:
        return {"build": None, "revision": None}
    return {"build": int(match[1]), "revision": int(match[2]) if match[2] else None}
