"""The served resources: maps URL segments to kinds and versions.

Built-in rows come from `machinery.kinds`; custom resources and aggregated groups are added and
removed at run time. Code that caches data derived from the set of resources (discovery, OpenAPI)
compares `generation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from transom.apiserver.core import deprecation
from transom.apiserver.core.typed import BuiltinType, TypeOps
from transom.machinery.errors import GroupResource
from transom.machinery.kinds import ALL_VERBS, GVK, Kind
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.schema import schema_table
from transom.machinery.served_since import ALL_SINCE, is_served_by, kinds_of, served_kinds


class Resource:
    """One kind in one served group version. Precomputes what the hot path would otherwise compute
    for each request.
    """

    __slots__ = (
        "api_version",
        "bucket",
        "custom",
        "gr",
        "group",
        "gvk",
        "has_objects",
        "identity",
        "kind",
        "ops",
        "prefix",
        "release",
        "served",
        "stored",
        "stored_api_version",
        "subresources",
        "verbs",
        "version",
        "warning",
    )

    def __init__(
        self,
        kind: Kind,
        version: str,
        group: str | None = None,
        make_ops: Callable[[Kind, GVK], TypeOps] = BuiltinType,
        *,
        served: bool = True,
        release: Release = ALL_SINCE,
    ) -> None:
        """`served`: whether clients may use it. The cluster's own components also use versions that
        its release does not serve.
        """
        self.served = served
        self.release = release
        self.kind = kind
        self.version = version
        self.group = kind.group if group is None else group
        self.gvk = GVK(self.group, version, kind.kind)
        self.api_version = self.gvk.api_version
        self.gr = GroupResource(self.group, kind.plural)  # errors name the group of the request
        self.bucket = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        self.stored = kind.stored
        self.stored_api_version = kind.gvk().api_version
        self.custom = kind.custom
        # While a definition is being deleted, its kind supports no writes; requests get an
        # explanatory error.
        self.verbs = ALL_VERBS if kind.custom else kind.verbs
        # Reviews and bindings can only be created; no path has a name of theirs.
        self.has_objects = self.verbs != ("create",)
        self.subresources = {s.name: s for s in kind.subresources_of(version, self.group)}
        # Stored bytes have no kind and apiVersion; they are prepended when an object is sent alone.
        self.prefix = f'{{"kind":"{kind.kind}","apiVersion":"{self.api_version}"'.encode()
        # True if the stored form equals the served form, so that stored bytes can be sent
        # unchanged.
        self.identity = version == kind.storage and self.group == kind.group and not kind.custom
        self.ops = make_ops(kind, self.gvk)
        self.warning = (
            ""
            if not has_behaviour(release, "DeprecationWarnings")
            else self.ops.deprecation
            if kind.custom
            else deprecation.deprecation_warning(self.gvk, release)
        )

    def key(self, namespace: str, name: str) -> str:
        return (
            f"{self.bucket}/{namespace}/{name}" if self.kind.namespaced else f"{self.bucket}/{name}"
        )

    def key_prefix(self, namespace: str) -> str:
        return (
            f"{self.bucket}/{namespace}/"
            if namespace and self.kind.namespaced
            else f"{self.bucket}/"
        )

    def __repr__(self) -> str:
        return f"Resource({self.api_version} {self.kind.plural})"


class _CustomResource:
    """A custom kind. It may have thousands of versions; the resource of each is made on first
    use.
    """

    __slots__ = ("_made", "_make_ops", "_release", "_versions", "kind")

    def __init__(
        self, kind: Kind, make_ops: Callable[[Kind, GVK], TypeOps], release: Release
    ) -> None:
        self.kind = kind
        self._make_ops = make_ops
        self._release = release
        self._versions = frozenset(kind.versions)
        self._made: dict[str, Resource] = {}

    def __contains__(self, version: str) -> bool:
        return version in self._versions

    def find(self, version: str) -> Resource | None:
        found = self._made.get(version)
        if found is None and version in self._versions:
            found = Resource(self.kind, version, None, self._make_ops, release=self._release)
            self._made[version] = found
        return found


_NO_CUSTOM: Mapping[str, _CustomResource] = {}


class ResourceRegistry:
    """Group version -> plural -> Resource."""

    def __init__(
        self,
        kinds: Iterable[Kind] | None = None,
        release: Release = ALL_SINCE,
        runtime_config: Mapping[str, bool] | None = None,
        feature_gates: Mapping[str, bool] | None = None,
    ) -> None:
        self.generation = 1
        self.release = release
        self.types = schema_table(release, feature_gates)
        self._is_served = is_served_by(release, runtime_config)
        self._by_gv: dict[tuple[str, str], dict[str, Resource]] = {}
        self._custom: dict[str, dict[str, _CustomResource]] = {}  # by group and plural
        self._kinds: dict[str, Kind] = {}
        for kind in kinds_of(release, feature_gates) if kinds is None else kinds:
            self.add(kind)

    def add(self, kind: Kind, make_ops: Callable[[Kind, GVK], TypeOps] = BuiltinType) -> None:
        """Adds a kind, or replaces it (a custom resource whose definition changed)."""
        if make_ops is BuiltinType:
            make_ops = self._builtin
        self.remove(kind.group, kind.plural)
        self._kinds[f"{kind.group}/{kind.plural}"] = kind
        if kind.custom:
            row = _CustomResource(kind, make_ops, self.release)
            self._custom.setdefault(kind.group, {})[kind.plural] = row
            self.generation += 1
            return
        for version in kind.versions:
            self._by_gv.setdefault((kind.group, version), {})[kind.plural] = Resource(
                kind,
                version,
                None,
                make_ops,
                served=self._is_served(kind.group, version, kind.kind),
                release=self.release,
            )
        for group, versions in kind.also:
            for version in versions:
                self._by_gv.setdefault((group, version), {})[kind.plural] = Resource(
                    kind,
                    version,
                    group,
                    self._builtin,
                    served=self._is_served(group, version, kind.kind),
                    release=self.release,
                )
        self.generation += 1

    def _builtin(self, kind: Kind, gvk: GVK) -> TypeOps:
        return BuiltinType(kind, gvk, self.types)

    @property
    def serves_all(self) -> bool:
        """Whether clients see every version that components of the cluster use."""
        return self.release == ALL_SINCE

    def remove(self, group: str, plural: str) -> None:
        kind = self._kinds.pop(f"{group}/{plural}", None)
        if kind is None:
            return
        if kind.custom:
            del self._custom[group][plural]
            if not self._custom[group]:
                del self._custom[group]
        for gv in [
            gv for gv, rows in self._by_gv.items() if plural in rows and rows[plural].kind is kind
        ]:
            del self._by_gv[gv][plural]
            if not self._by_gv[gv]:
                del self._by_gv[gv]
        self.generation += 1

    def touch(self) -> None:
        """Invalidates everything derived from the resources."""
        self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        rows = self._by_gv.get((group, version))
        found = rows.get(plural) if rows is not None else None
        return self._find_custom(group, version, plural) if found is None else found

    def _find_custom(self, group: str, version: str, plural: str) -> Resource | None:
        row = self._custom.get(group, _NO_CUSTOM).get(plural)
        return None if row is None else row.find(version)

    def require(self, group: str, version: str, plural: str) -> Resource:
        """A resource that every server has; raises LookupError."""
        found = self.find(group, version, plural)
        if found is None:
            raise LookupError(f"{group}/{version} {plural} is not served")
        return found

    def find_served(self, group: str, version: str, plural: str) -> Resource | None:
        """Like `find`, but only what the release serves to clients."""
        rows = self._by_gv.get((group, version))
        found = rows.get(plural) if rows is not None else None
        if found is None:
            return self._find_custom(group, version, plural)
        return found if found.served else None

    def is_served(self, group: str, version: str, plural: str, subresource: str) -> bool:
        found = self.find_served(group, version, plural)
        return found is not None and (not subresource or subresource in found.subresources)

    def has_version(self, group: str, version: str) -> bool:
        rows = self._by_gv.get((group, version), {})
        return any(r.served for r in rows.values()) or any(
            version in row for row in self._custom.get(group, _NO_CUSTOM).values()
        )

    def answers_for(self, group: str, version: str) -> bool:
        """Whether this server itself answers requests for unknown resources of a group version."""
        any_version = has_behaviour(self.release, "GroupNotFoundAsStatus")
        return any(
            r.served
            for (of, served), rows in self._by_gv.items()
            if of == group and (any_version or served == version)
            for r in rows.values()
        )

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        rows = self._by_gv.get((group, version), {})
        found = next((r for r in rows.values() if r.kind.kind == kind), None)
        if found is not None:
            return found
        custom = self._custom.get(group, _NO_CUSTOM).values()
        row = next((c for c in custom if c.kind.kind == kind and version in c), None)
        return None if row is None else row.find(version)

    def storage(self, group: str, plural: str) -> Resource | None:
        """The resource in its storage version, or in a served version if that is not served."""
        kind = self._kinds.get(f"{group}/{plural}")
        if kind is None:
            return None
        return self.find(group, kind.storage, plural) or self.find(group, kind.versions[0], plural)

    def served_kinds(self) -> Iterator[Kind]:
        """Kinds and versions that clients see."""
        return served_kinds(self._is_served, self.kinds())

    def kinds(self) -> Iterator[Kind]:
        return iter(list(self._kinds.values()))
