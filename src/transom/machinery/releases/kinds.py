"""The built-in kinds of releases from 1.21 on: the rows of `machinery.kinds` with the versions,
names and subresources of the release, and the kinds that came later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from transom.kit.lazy import lazy_pattern
from transom.machinery.kinds import KINDS, Kind, Subresource
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.release import Release, in_range, table_lines
from transom.machinery.releases.served import ResourceRow, resource_rows

_VERSION = lazy_pattern(r"v(\d+)(?:beta(\d+))?\Z")
# Subresources that the server installs only if a feature gate is on.
_SUBRESOURCE_GATES = {("", "pods", "resize"): "InPlacePodVerticalScaling"}


def _order(version: str) -> tuple[int, int, int]:
    """v2, v1, v1beta2, v1beta1."""
    match = _VERSION.match(version)
    assert match is not None
    return (match[2] is not None, -int(match[1]), -int(match[2] or 0))


@cache
def release_kinds(release: Release) -> tuple[Kind, ...]:
    """All kinds that a server of the release knows. Versions that it does not serve, because they
    are off or removed, follow those that it serves.
    """
    rows: dict[tuple[str, str], list[ResourceRow]] = {}
    for row in resource_rows(release):
        rows.setdefault((row.group, row.name.partition("/")[0]), []).append(row)
    out = []
    for kind in KINDS:
        found = rows.pop((kind.group, kind.plural), None)
        for group, _ in kind.also:
            rows.pop((group, kind.plural), None)
        out.append(kind if found is None else _updated(kind, found))
    for (group, plural), found in rows.items():
        out.append(_new(group, plural, found))
    return tuple(out)


def enabled_kinds(release: Release, gates: Mapping[str, bool]) -> tuple[Kind, ...]:
    """The kinds of the release without the subresources whose feature gate is off."""
    features = FeatureSet(release, gates)
    off = {key for key, gate in _SUBRESOURCE_GATES.items() if not features.enabled(gate)}
    plurals = {(group, plural) for group, plural, _ in off}
    return tuple(
        replace(
            kind,
            subresources=tuple(
                one for one in kind.subresources if (kind.group, kind.plural, one.name) not in off
            ),
        )
        if (kind.group, kind.plural) in plurals
        else kind
        for kind in release_kinds(release)
    )


def _main_rows(rows: Iterable[ResourceRow]) -> list[ResourceRow]:
    """The rows of the resource itself: served ones first, newest first."""
    main = [row for row in rows if "/" not in row.name]
    return sorted(main, key=lambda row: (not row.on, _order(row.version)))


def _subresources(rows: Iterable[ResourceRow], main: ResourceRow) -> tuple[Subresource, ...]:
    out = []
    for row in rows:
        if row.version != main.version or "/" not in row.name:
            continue
        group, _, version = row.kind_version.rpartition("/")
        out.append(
            Subresource(
                row.name.partition("/")[2],
                row.verbs,
                "" if row.kind == main.kind and not row.kind_version else row.kind,
                group,
                version,
            )
        )
    return tuple(out)


def _updated(kind: Kind, rows: list[ResourceRow]) -> Kind:
    main = _main_rows(rows)
    first = main[0]
    versions = [row.version for row in main]
    versions += [v for v in kind.versions if v not in versions]
    subresources = _subresources(rows, first)
    by_version = tuple(
        (row.version, found)
        for row in main[1:]
        if (found := _subresources(rows, row)) != subresources
    )
    return replace(
        kind,
        versions=tuple(versions),
        short=first.short,
        categories=first.categories,
        subresources=subresources,
        version_subresources=by_version,
        verbs=first.verbs,
        singular=first.singular,
        published_storage=first.stored,
    )


def _new(group: str, plural: str, rows: list[ResourceRow]) -> Kind:
    main = _main_rows(rows)
    first = main[0]
    made = Kind(group, first.kind, plural, namespaced=first.namespaced, storage=first.version)
    return _updated(replace(made, versions=()), rows)


@cache
def _priorities(release: Release) -> dict[str, tuple[int, int]]:
    out = {}
    for line in table_lines("priorities.txt"):
        words = line.split(" ")
        if words[-1].startswith("@") and not in_range(words.pop()[1:], release):
            continue
        out[words[0]] = int(words[1]), int(words[2])
    return out


def group_version_priorities(release: Release, group: str, version: str) -> tuple[int, int] | None:
    """Priority of a built-in group, and of the version in it; None for other groups."""
    return _priorities(release).get(f"{group}/{version}" if group else version)
