"""Discovery: the documents that list the served groups, versions and resources.

Pure functions from `Kind` rows (built-in and custom) and aggregated group versions to documents.
The classic documents are those of Kubernetes 1.20; the aggregated ones (`apidiscovery.k8s.io`) are
for newer clients. Independent of HTTP.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple
from transom.machinery.kinds import Kind, Subresource
from transom.machinery.releases import BUILDS, Release, has_tables, parse_release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.kinds import group_version_priorities
from transom.machinery.served_since import ALL_SINCE

AGGREGATED_GROUP = "apidiscovery.k8s.io"
REGISTRATION_GROUP = "apiregistration.k8s.io"

# group -> (priority of the group, {version: priority}). Larger comes first, and the first version
# is preferred. Versions that 1.20 did not have come after its preferred one.
PRIORITIES: dict[str, tuple[int, dict[str, int]]] = {
    "": (18000, {"v1": 1}),
    "apps": (17800, {"v1": 15, "v1beta2": 9, "v1beta1": 1}),
    "events.k8s.io": (17750, {"v1": 15, "v1beta1": 5}),
    "authentication.k8s.io": (17700, {"v1": 15, "v1beta1": 9}),
    "authorization.k8s.io": (17600, {"v1": 15, "v1beta1": 9}),
    "autoscaling": (17500, {"v1": 15, "v2beta1": 9, "v2": 8, "v2beta2": 1}),
    "batch": (17400, {"v1": 15, "v1beta1": 9}),
    "certificates.k8s.io": (17300, {"v1": 15}),
    "networking.k8s.io": (17200, {"v1": 15, "v1beta1": 9}),
    "extensions": (17150, {"v1beta1": 1}),
    "policy": (17100, {"v1beta1": 9, "v1": 8}),
    "rbac.authorization.k8s.io": (17000, {"v1": 15, "v1beta1": 12}),
    "storage.k8s.io": (16800, {"v1": 15, "v1beta1": 9}),
    "apiextensions.k8s.io": (16700, {"v1": 15, "v1beta1": 9}),
    "admissionregistration.k8s.io": (16700, {"v1": 15, "v1beta1": 12}),
    "scheduling.k8s.io": (16600, {"v1": 15, "v1beta1": 12}),
    "coordination.k8s.io": (16500, {"v1": 15, "v1beta1": 9}),
    "node.k8s.io": (16300, {"v1": 15, "v1beta1": 9}),
    "discovery.k8s.io": (16200, {"v1beta1": 12, "v1": 11}),
    "flowcontrol.apiserver.k8s.io": (16100, {"v1beta1": 12, "v1": 11}),
}
CUSTOM_PRIORITY = (1000, 100)
# Before 1.20 the group came right after the core group, although other groups had the newer
# versions of its kinds.
_EXTENSIONS_BEFORE_1_20 = 17900

# The storage version in 1.20, where ours differs. Clients see it as a hash.
_STORED_BY_1_20 = {
    "admissionregistration.k8s.io/MutatingWebhookConfiguration": "v1beta1",
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration": "v1beta1",
    "apiextensions.k8s.io/CustomResourceDefinition": "v1beta1",
    "apiregistration.k8s.io/APIService": "v1beta1",
    "autoscaling/HorizontalPodAutoscaler": "v1",
    "batch/CronJob": "v1beta1",
    "certificates.k8s.io/CertificateSigningRequest": "v1beta1",
    "coordination.k8s.io/Lease": "v1beta1",
    "discovery.k8s.io/EndpointSlice": "v1beta1",
    "flowcontrol.apiserver.k8s.io/FlowSchema": "v1beta1",
    "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration": "v1beta1",
    "networking.k8s.io/Ingress": "v1beta1",
    "networking.k8s.io/IngressClass": "v1beta1",
    "node.k8s.io/RuntimeClass": "v1beta1",
    "policy/PodDisruptionBudget": "v1beta1",
    "storage.k8s.io/CSIDriver": "v1beta1",
}
# Served but not in 1.20's documents; clients use them without discovery.
_UNLISTED = {"pods/ephemeralcontainers", "selfsubjectreviews"}
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


class ServedVersion(NamedTuple):
    """One group version: its priority and its resources in the classic form."""

    group: str
    version: str
    group_priority: int
    version_priority: int
    resources: Sequence[Mapping[str, Any]] = ()
    # False if an aggregated server did not respond; newer clients see it.
    fresh: bool = True

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


_VERSION = lazy_pattern(r"v(\d+)(?:(alpha|beta)(\d+))?\Z")
_STABILITY = {None: 2, "beta": 1, "alpha": 0}


def version_key(version: str) -> tuple[Any, ...]:
    """Sorts versions as Kubernetes does: v2, v1, v1beta2, v1beta1, v1alpha1, then others by
    name.
    """
    match = _VERSION.match(version)
    if match is None:
        return (1, version)
    return (0, -_STABILITY[match[2]], -int(match[1]), -int(match[3] or 0))


def version_priorities(group: str, version: str, release: Release = ALL_SINCE) -> tuple[int, int]:
    """`groupPriorityMinimum` and `versionPriority` of a group version that this server serves
    itself.
    """
    if has_tables(release):
        return group_version_priorities(release, group, version) or CUSTOM_PRIORITY
    if group not in PRIORITIES:
        return CUSTOM_PRIORITY
    of_group, of_versions = PRIORITIES[group]
    if group == "extensions" and not has_behaviour(release, "LowerExtensionsPriority"):
        of_group = _EXTENSIONS_BEFORE_1_20
    return of_group, of_versions.get(version, 1)


def storage_version_hash(kind: Kind) -> str:
    stored = kind.published_storage or _STORED_BY_1_20.get(kind.key, kind.storage)
    return _hashed(kind.group, stored, kind.kind)


@lru_cache(maxsize=4096)
def _hashed(group: str, version: str, kind: str) -> str:
    digest = hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def served_versions(
    kinds: Iterable[Kind],
    aggregated: Iterable[ServedVersion] = (),
    release: Release = ALL_SINCE,
) -> list[ServedVersion]:
    """All group versions, ordered: groups by priority, the versions of a group by theirs."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for kind in kinds:
        places = [(kind.group, v) for v in kind.versions]
        places += [(group, v) for group, versions in kind.also for v in versions]
        main = _main_resource(kind)
        # Most versions of a kind have the same subresources; there may be thousands of versions.
        known: dict[tuple[Subresource, ...], list[dict[str, Any]]] = {}
        for group, version in places:
            subresources = kind.subresources_of(version, group)
            found = known.get(subresources)
            if found is None:
                found = [main, *(_subresource(kind, sub) for sub in subresources)]
                known[subresources] = found
            rows.setdefault((group, version), []).extend(found)
    own = [
        ServedVersion(g, v, *priorities, _sorted(priorities, resources))
        for (g, v), resources in rows.items()
        for priorities in (version_priorities(g, v, release),)
    ]
    everything = [s for s in aggregated if (s.group, s.version) not in rows] + own
    # apiregistration.k8s.io is always first; a group is ordered by its highest version.
    everything.sort(
        key=lambda s: (s.group != REGISTRATION_GROUP, -s.group_priority, f"{s.version}.{s.group}")
    )
    order = {group: place for place, group in enumerate(dict.fromkeys(s.group for s in everything))}
    everything.sort(key=lambda s: (order[s.group], -s.version_priority, version_key(s.version)))
    return everything


def _sorted(priorities: tuple[int, int], resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of custom resources are in the order of their definitions."""
    if priorities == CUSTOM_PRIORITY:
        return resources
    return sorted(resources, key=lambda r: str(r["name"]))


def _main_resource(kind: Kind) -> dict[str, Any]:
    main: dict[str, Any] = {
        "name": kind.plural,
        "singularName": (kind.singular or kind.kind.lower()) if kind.custom else kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": [v for v in _CUSTOM_VERBS if v in kind.verbs] if kind.custom else list(kind.verbs),
    }
    if kind.short:
        main["shortNames"] = list(kind.short)
    if kind.categories:
        main["categories"] = list(kind.categories)
    if kind.storage in kind.versions if kind.custom else kind.stored:
        main["storageVersionHash"] = storage_version_hash(kind)
    return main


def _subresource(kind: Kind, sub: Subresource) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
    }
    if sub.group:
        resource |= {"group": sub.group, "version": sub.version}
    return {**resource, "kind": sub.kind or kind.kind, "verbs": list(sub.verbs)}


def api_versions(server_address: str) -> dict[str, Any]:
    """`/api`, which has no apiVersion."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}
        ],
    }


def _group(versions: Sequence[ServedVersion]) -> dict[str, Any]:
    entries = [{"groupVersion": s.group_version, "version": s.version} for s in versions]
    return {"name": versions[0].group, "versions": entries, "preferredVersion": entries[0]}


def _by_group(all_served: Iterable[ServedVersion]) -> dict[str, list[ServedVersion]]:
    groups: dict[str, list[ServedVersion]] = {}
    for one in all_served:
        groups.setdefault(one.group, []).append(one)
    return groups


def api_group_list(all_served: Iterable[ServedVersion]) -> dict[str, Any]:
    """`/apis`."""
    groups = [_group(versions) for group, versions in _by_group(all_served).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(all_served: Iterable[ServedVersion], name: str) -> dict[str, Any] | None:
    """`/apis/GROUP`."""
    versions = [s for s in all_served if s.group == name]
    return (
        {"kind": "APIGroup", "apiVersion": "v1", **_group(versions)} if versions and name else None
    )


def api_resource_list(
    all_served: Iterable[ServedVersion], name: str, version: str, release: Release = ALL_SINCE
) -> dict[str, Any] | None:
    """`/api/v1` or `/apis/GROUP/VERSION`; the core group's document has no apiVersion."""
    one = next((s for s in all_served if s.group == name and s.version == version), None)
    if one is None:
        return None
    unlisted = _UNLISTED if not has_tables(release) else ()
    head = {"kind": "APIResourceList", "apiVersion": "v1"} if name else {"kind": "APIResourceList"}
    resources = [r for r in one.resources if r["name"] not in unlisted]
    return {**head, "groupVersion": one.group_version, "resources": resources}


def aggregated_list(
    all_served: Iterable[ServedVersion],
    *,
    core: bool,
    version: str = "v2",
    timestamps: bool = True,
) -> dict[str, Any]:
    """All resources of all groups in one document: `core` for `/api`, otherwise `/apis`.
    `timestamps`: metadata shows its empty time.
    """
    groups = _by_group(s for s in all_served if (s.group == "") is core)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"{AGGREGATED_GROUP}/{version}",
        "metadata": {},
        "items": [
            _discovered_group(name, versions, timestamps) for name, versions in groups.items()
        ],
    }


def _discovered_group(
    name: str, versions: Iterable[ServedVersion], timestamps: bool
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name} if name else {}
    if timestamps:
        metadata["creationTimestamp"] = None
    return {
        "metadata": metadata,
        "versions": [
            {
                "version": s.version,
                "resources": _discovered_resources(s),
                "freshness": "Current" if s.fresh else "Stale",
            }
            for s in versions
        ],
    }


def _discovered_resources(one: ServedVersion) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    # Clients complete the kind of a built-in resource by the group version that lists it.
    is_custom = (one.group_priority, one.version_priority) == CUSTOM_PRIORITY
    default_group, default_version = (one.group, one.version) if is_custom else ("", "")
    for resource in one.resources:
        name, _, sub = str(resource["name"]).partition("/")
        kind = {
            "group": resource.get("group", default_group),
            "version": resource.get("version", default_version),
            "kind": resource["kind"],
        }
        if sub:
            entry = {"subresource": sub, "responseKind": kind, "verbs": resource["verbs"]}
            found.setdefault(name, _bare(name, resource)).setdefault("subresources", []).append(
                entry
            )
            continue
        found[name] = {
            **_bare(name, resource),
            "responseKind": kind,
            "singularResource": resource["singularName"] or resource["kind"].lower(),
            "verbs": resource["verbs"],
            **{key: resource[key] for key in ("shortNames", "categories") if resource.get(key)},
        }
    return list(found.values())


def _bare(name: str, resource: Mapping[str, Any]) -> dict[str, Any]:
    """A resource with only subresources has no kind and no verbs."""
    scope = "Namespaced" if resource["namespaced"] else "Cluster"
    return {"resource": name, "scope": scope, "singularResource": "", "verbs": []}


_FIXED_PATHS = (
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
)


def root_paths(
    all_served: Iterable[ServedVersion],
    checks: Mapping[str, Iterable[str]],
    *,
    openapi_v3: bool = True,
    more: Iterable[str] = (),
) -> dict[str, Any]:
    """`/`: all paths; `checks` are the names of health checks below `healthz` and the like; `more`
    are paths that depend on feature gates.
    """
    paths = set(_FIXED_PATHS)
    if openapi_v3:
        paths |= {"/openapi/v3", "/openapi/v3/"}
    paths.update(more)
    for one in all_served:
        if one.group:
            paths |= {f"/apis/{one.group}", f"/apis/{one.group}/{one.version}"}
    for root, names in checks.items():
        paths |= {f"/{root}/{name}" for name in names}
    return {"paths": sorted(paths)}


def version_info(release: str = "1.20") -> dict[str, str]:
    """`/version`: the last patch of a release."""
    build = BUILDS[release]
    major, minor = release.split(".")
    emulated = {}
    if has_behaviour(parse_release(release), "EmulationVersions"):
        emulated = {
            "emulationMajor": major,
            "emulationMinor": minor,
            "minCompatibilityMajor": major,
            "minCompatibilityMinor": str(int(minor) - 1),
        }
    return {
        "major": major,
        "minor": minor,
        **emulated,
        "gitVersion": build.git_version,
        "gitCommit": build.commit,
        "gitTreeState": "clean",
        "buildDate": build.date,
        "goVersion": build.go,
        "compiler": "gc",
        "platform": "linux/amd64",
    }


class DiscoveryDocument(NamedTuple):
    body: bytes
    etag: str  # quoted, as the header requires


class DocumentCache:
    """Serialized documents; all are dropped when the set of served resources changes."""

    def __init__(self) -> None:
        self._generation: Hashable = None
        self._documents: dict[Hashable, DiscoveryDocument] = {}

    def get(
        self, generation: Hashable, key: Hashable, build: Callable[[], Any]
    ) -> DiscoveryDocument | None:
        """`build` creates the document (or its bytes); None, for a resource that is not served, is
        not cached.
        """
        if generation != self._generation:
            self._documents.clear()
            self._generation = generation
        found = self._documents.get(key)
        if found is None:
            made = build()
            if made is None:
                return None
            found = self._documents[key] = make_discovery_document(made)
        return found


def make_discovery_document(made: Any) -> DiscoveryDocument:
    body = made if isinstance(made, bytes) else orjson.dumps(made) + b"\n"
    return DiscoveryDocument(body, f'"{hashlib.sha512(body).hexdigest().upper()}"')
