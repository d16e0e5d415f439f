"""Which kinds and versions a release serves.

Release 1.20 serves everything in `kinds.KINDS`: it keeps newer versions on purpose
(docs/differences.md). A cluster of an older release must not serve versions that came later, and
serves versions that have been removed since; their first and last releases are here. Later releases
serve exactly what the tables of `releases` say. Components inside the cluster use any version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from transom.machinery.kinds import KINDS, STATUS, STATUS_VERBS, Kind, Subresource
from transom.machinery.releases import Release, has_tables
from transom.machinery.releases.kinds import enabled_kinds
from transom.machinery.releases.served import served_resources

ALL_SINCE: Final = Release(1, 20)
IsServed = Callable[[str, str, str], bool]  # group, version and kind
# (group, version, kind) -> the first release; kind "" stands for all kinds of the group version.
# Versions that are not listed are older than 1.14. Source: Kubernetes' changelogs and the default
# API resource configuration of each release.
FIRST_SERVED: Final[Mapping[tuple[str, str, str], tuple[int, int]]] = {
    ("admissionregistration.k8s.io", "v1", ""): (1, 16),
    ("apiextensions.k8s.io", "v1", ""): (1, 16),
    ("authentication.k8s.io", "v1", "SelfSubjectReview"): (1, 28),
    ("autoscaling", "v2", ""): (1, 23),
    ("batch", "v1", "CronJob"): (1, 21),
    ("certificates.k8s.io", "v1", ""): (1, 19),
    ("coordination.k8s.io", "v1", ""): (1, 14),
    ("discovery.k8s.io", "v1", ""): (1, 21),
    ("discovery.k8s.io", "v1beta1", ""): (1, 17),
    ("events.k8s.io", "v1", ""): (1, 19),
    ("flowcontrol.apiserver.k8s.io", "v1", ""): (1, 29),
    ("flowcontrol.apiserver.k8s.io", "v1beta1", ""): (1, 20),
    ("networking.k8s.io", "v1", "Ingress"): (1, 19),
    ("networking.k8s.io", "v1", "IngressClass"): (1, 19),
    ("networking.k8s.io", "v1beta1", "Ingress"): (1, 14),
    ("networking.k8s.io", "v1beta1", "IngressClass"): (1, 18),
    ("node.k8s.io", "v1", ""): (1, 20),
    ("node.k8s.io", "v1beta1", ""): (1, 14),
    ("policy", "v1", ""): (1, 21),
    ("scheduling.k8s.io", "v1", ""): (1, 14),
    ("storage.k8s.io", "v1", "CSIDriver"): (1, 18),
    ("storage.k8s.io", "v1", "CSINode"): (1, 17),
    ("storage.k8s.io", "v1", "CSIStorageCapacity"): (1, 24),
    ("storage.k8s.io", "v1beta1", "CSIDriver"): (1, 14),
    ("storage.k8s.io", "v1beta1", "CSINode"): (1, 14),
    ("storage.k8s.io", "v1beta1", "CSIStorageCapacity"): (1, 21),
}

# The first release that no longer serves the betas of workloads and the kinds of group `extensions`
# other than ingresses.
BETAS_REMOVED: Final = Release(1, 16)
_EXTENSIONS: Final = (("extensions", ("v1beta1",)),)
_ROLLBACK: Final = Subresource("rollback", ("create",), "DeploymentRollback")


def _scale(group: str, version: str) -> Subresource:
    return Subresource("scale", STATUS_VERBS, "Scale", group, version)


def _scaled(
    *places: tuple[str, str], more: tuple[Subresource, ...] = ()
) -> tuple[tuple[str, tuple[Subresource, ...]], ...]:
    """The sub-resources of a workload by version: each beta has a Scale of its own."""
    return tuple(
        (
            version if group == "apps" else f"{group}/{version}",
            (*(more if version == "v1beta1" else ()), _scale(group, version), STATUS),
        )
        for group, version in places
    )


# Kind.key -> additional versions, in releases before BETAS_REMOVED.
_BETAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "apps/ControllerRevision": {"versions": ("v1", "v1beta2", "v1beta1")},
    "apps/DaemonSet": {"versions": ("v1", "v1beta2"), "also": _EXTENSIONS},
    "apps/Deployment": {
        "versions": ("v1", "v1beta2", "v1beta1"),
        "also": _EXTENSIONS,
        "version_subresources": _scaled(
            ("apps", "v1beta1"), ("apps", "v1beta2"), ("extensions", "v1beta1"), more=(_ROLLBACK,)
        ),
    },
    "apps/ReplicaSet": {
        "versions": ("v1", "v1beta2"),
        "also": _EXTENSIONS,
        "version_subresources": _scaled(("apps", "v1beta2"), ("extensions", "v1beta1")),
    },
    "apps/StatefulSet": {
        "versions": ("v1", "v1beta2", "v1beta1"),
        "version_subresources": _scaled(("apps", "v1beta1"), ("apps", "v1beta2")),
    },
    "networking.k8s.io/NetworkPolicy": {"also": _EXTENSIONS},
    "policy/PodSecurityPolicy": {"also": _EXTENSIONS},
}


def kinds_of(release: Release, gates: Mapping[str, bool] | None = None) -> tuple[Kind, ...]:
    """The built-in kinds with all versions that a server of the release knows, including later
    ones. `gates` is what `--feature-gates` changes.
    """
    if has_tables(release):
        return enabled_kinds(release, gates or {})
    if release >= BETAS_REMOVED:
        return KINDS
    return tuple(
        replace(kind, **more) if (more := _BETAS.get(kind.key)) else kind for kind in KINDS
    )


def is_served_by(release: Release, runtime_config: Mapping[str, bool] | None = None) -> IsServed:
    """Whether clients of a release see a kind. `runtime_config` is that of
    `--runtime-config`.
    """
    if has_tables(release):
        served = served_resources(release, runtime_config)
        return lambda group, version, kind: (group, version, kind) in served
    if release >= ALL_SINCE:
        return lambda group, version, kind: True

    def was_served(group: str, version: str, kind: str) -> bool:
        since = FIRST_SERVED.get((group, version, kind)) or FIRST_SERVED.get((group, version, ""))
        return since is None or release >= since

    return was_served


def served_kinds(is_served: IsServed, kinds: Iterable[Kind]) -> Iterator[Kind]:
    """Each kind with the versions that the release serves, without the kinds that have none."""
    for kind in kinds:
        if kind.custom:
            yield kind
            continue
        versions = tuple(v for v in kind.versions if is_served(kind.group, v, kind.kind))
        also = tuple(
            (group, found)
            for group, more in kind.also
            if (found := tuple(v for v in more if is_served(group, v, kind.kind)))
        )
        if versions or also:
            yield (
                kind
                if (versions, also) == (kind.versions, kind.also)
                else replace(kind, versions=versions, also=also)
            )
