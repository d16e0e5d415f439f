"""The served resources: which URL segment means which kind in which version.

Built-in rows come from `machinery.kinds`; custom resources and aggregated groups come and go at run time. Whoever caches
something derived from the set of resources (discovery, OpenAPI) compares `generation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from transom.apiserver import deprecation
from transom.apiserver.typed import BuiltinType, TypeOps
from transom.machinery.errors import GroupResource
from transom.machinery.kinds import ALL_VERBS, GVK, KINDS, Kind


class Resource:
    """One kind as one group version serves it. Carries what the hot path would otherwise compute for each request."""

    __slots__ = (
        "api_version", "bucket", "custom", "gr", "group", "gvk", "identity", "kind", "ops", "prefix", "stored",
        "subresources", "verbs", "version", "warning",
    )

    def __init__(
        self, kind: Kind, version: str, group: str | None = None, make_ops: Callable[[Kind, GVK], TypeOps] = BuiltinType
    ) -> None:
        self.kind = kind
        self.version = version
        self.group = kind.group if group is None else group
        self.gvk = GVK(self.group, version, kind.kind)
        self.api_version = self.gvk.api_version
        self.gr = GroupResource(self.group, kind.plural)  # errors speak of the group that was asked
        self.bucket = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        self.stored = kind.stored
        self.custom = kind.custom
        # While a definition goes, its kind no longer offers writes; who asks for one hears why it is refused.
        self.verbs = ALL_VERBS if kind.custom else kind.verbs
        self.subresources = {s.name: s for s in kind.subresources_of(version)}
        # Stored bytes carry no kind and apiVersion; they are put in front when an object stands alone.
        self.prefix = f'{{"kind":"{kind.kind}","apiVersion":"{self.api_version}"'.encode()
        # True when the stored shape is the served shape, so that stored bytes can go out as they are.
        self.identity = version == kind.storage and self.group == kind.group and not kind.custom
        self.ops = make_ops(kind, self.gvk)
        self.warning = deprecation.warning(self.gvk) if not kind.custom else self.ops.deprecation

    def key(self, namespace: str, name: str) -> str:
        return f"{self.bucket}/{namespace}/{name}" if self.kind.namespaced else f"{self.bucket}/{name}"

    def key_prefix(self, namespace: str) -> str:
        return f"{self.bucket}/{namespace}/" if namespace and self.kind.namespaced else f"{self.bucket}/"

    def __repr__(self) -> str:
        return f"Resource({self.api_version} {self.kind.plural})"


class Resources:
    """Group version -> plural -> Resource."""

    def __init__(self, kinds: Iterable[Kind] = KINDS) -> None:
        self.generation = 1
        self._by_gv: dict[tuple[str, str], dict[str, Resource]] = {}
        self._kinds: dict[str, Kind] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind, make_ops: Callable[[Kind, GVK], TypeOps] = BuiltinType) -> None:
        """Add a kind, or replace it (a custom resource whose definition changed)."""
        self.remove(kind.group, kind.plural)
        self._kinds[f"{kind.group}/{kind.plural}"] = kind
        for version in kind.versions:
            self._by_gv.setdefault((kind.group, version), {})[kind.plural] = Resource(kind, version, None, make_ops)
        for group, versions in kind.also:
            for version in versions:
                self._by_gv.setdefault((group, version), {})[kind.plural] = Resource(kind, version, group)
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        kind = self._kinds.pop(f"{group}/{plural}", None)
        if kind is None:
            return
        for gv in [gv for gv, rows in self._by_gv.items() if plural in rows and rows[plural].kind is kind]:
            del self._by_gv[gv][plural]
            if not self._by_gv[gv]:
                del self._by_gv[gv]
        self.generation += 1

    def touch(self) -> None:
        """Whoever derived something from the resources shall do it again."""
        self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        rows = self._by_gv.get((group, version))
        return rows.get(plural) if rows is not None else None

    def has_version(self, group: str, version: str) -> bool:
        return (group, version) in self._by_gv

    def has_builtin(self, group: str, version: str) -> bool:
        return any(not r.custom for r in self._by_gv.get((group, version), {}).values())

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        rows = self._by_gv.get((group, version), {})
        return next((r for r in rows.values() if r.kind.kind == kind), None)

    def storage(self, group: str, plural: str) -> Resource | None:
        """The resource in its storage version, or in the one it is served in when that is not served."""
        kind = self._kinds.get(f"{group}/{plural}")
        if kind is None:
            return None
        return self.find(group, kind.storage, plural) or self.find(group, kind.versions[0], plural)

    def kinds(self) -> Iterator[Kind]:
        return iter(list(self._kinds.values()))
