"""The resources that each release from 1.21 on serves, and those that it can serve
(`--runtime-config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from transom.kit.named_tuple import NamedTuple
from transom.machinery.kinds import GVK
from transom.machinery.releases.release import Release, in_range, table_lines


class ResourceRow(NamedTuple):
    """One APIResource of discovery."""

    group: str
    version: str
    name: str  # `pods`, `pods/status`
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    on: bool  # served by default
    kind_version: str  # group version of a subresource's kind, "" for that of the row
    singular: str
    short: tuple[str, ...]
    categories: tuple[str, ...]
    stored: str  # the storage version, "" for what is not stored


class Deprecation(NamedTuple):
    since: str  # "1.21"
    removed: str  # "" if no release removes it
    replacement: GVK | None


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _row(words: list[str], on: bool) -> ResourceRow:
    api_version, name, kind, scope, verbs, *more = words
    notes = dict(word.split("=", 1) for word in more)
    group, _, version = api_version.rpartition("/")
    return ResourceRow(
        group,
        version,
        name,
        kind,
        scope == "namespaced",
        _split(verbs),
        on,
        notes.get("as", ""),
        notes.get("singular", ""),
        _split(notes.get("short", "")),
        _split(notes.get("categories", "")),
        notes.get("stored", ""),
    )


@cache
def resource_rows(release: Release) -> tuple[ResourceRow, ...]:
    out = []
    for line in table_lines("resources.txt"):
        words = line.split(" ")
        if words[-1].startswith("@") and not in_range(words.pop()[1:], release):
            continue
        off = words[0] == "-"
        out.append(_row(words[1:] if off else words, not off))
    return tuple(out)


@cache
def _deprecations(release: Release) -> dict[tuple[str, str], Deprecation]:
    out = {}
    for line in table_lines("deprecations.txt"):
        words = line.split(" ")
        if words[-1].startswith("@") and not in_range(words.pop()[1:], release):
            continue
        api_version, kind, since, removed, replacement = words
        found = None
        if replacement != "-":
            *group, version, other = replacement.split("/")
            found = GVK("/".join(group), version, other)
        out[api_version, kind] = Deprecation(since, "" if removed == "-" else removed, found)
    return out


def find_deprecation(release: Release, gvk: GVK) -> Deprecation | None:
    return _deprecations(release).get((gvk.api_version, gvk.kind))


def deprecation_text(release: Release, gvk: GVK) -> str:
    """The warning for each request of a deprecated kind, "" for others."""
    found = find_deprecation(release, gvk)
    if found is None:
        return ""
    text = f"{gvk.api_version} {gvk.kind} is deprecated in v{found.since}+"
    if found.removed:
        text += f", unavailable in v{found.removed}+"
    if found.replacement is not None:
        text += f"; use {found.replacement.api_version} {found.replacement.kind}"
    return text


def is_on(row: ResourceRow, runtime_config: Mapping[str, bool]) -> bool:
    """Whether a resource is served: by default, or as `--runtime-config` says (`api/beta=true`,
    `batch/v1=false`, `batch/v1/jobs=true`); the most specific setting wins.
    """
    api_version = f"{row.group}/{row.version}" if row.group else row.version
    plural = row.name.partition("/")[0]
    level = "api/beta" if "beta" in row.version else "api/ga"
    for key in (f"{api_version}/{plural}", api_version, f"api/{api_version}", level, "api/all"):
        if key in runtime_config:
            return runtime_config[key]
    return row.on


def served_resources(
    release: Release, runtime_config: Mapping[str, bool] | None = None
) -> frozenset[tuple[str, str, str]]:
    """(group, version, kind) of all resources that are served; kinds of main resources."""
    return frozenset(
        (row.group, row.version, row.kind)
        for row in resource_rows(release)
        if "/" not in row.name and is_on(row, runtime_config or {})
    )
