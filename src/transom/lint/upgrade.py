"""The rehearsal of an upgrade: what of manifests and nodes breaks, changes or starts to work between
two kinds of Windows nodes, record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.lint.config import LintConfig
from transom.lint.engine import lint_sources
from transom.lint.findings import LintFinding
from transom.lint.objects import ManifestObject, manifest_objects
from transom.lint.sources import SourcesRead
from transom.lint.tree import BrokenDocument
from transom.lint.upgrade_checks import (
    UPGRADE_CHECKS,
    Outcome,
    UpgradeItem,
    begins_between,
    find_pod_security,
    title_of,
    upgrade_record,
)
from transom.windows.limits import LIMITS
from transom.windows.match import record_holds
from transom.windows.records import Network, NodeTarget, Release, Runtime, WindowsLimit
from transom.windows.target_nodes import TargetNodes, target_nodes_from_options


@dataclass(slots=True)
class UpgradeReport:
    before: NodeTarget
    after: NodeTarget
    items: list[UpgradeItem] = field(default_factory=list)
    nodes: list[tuple[Outcome, WindowsLimit]] = field(default_factory=list)
    objects: int = 0
    problems: list[str] = field(default_factory=list)

    def of(self, outcome: Outcome) -> list[UpgradeItem]:
        return [item for item in self.items if item.outcome == outcome]


def upgrade_nodes(
    release: Release,
    build: int | None,
    runtime: Runtime | None,
    network: Network | None = None,
    features: Iterable[str] = (),
) -> TargetNodes:
    """The nodes before or after an upgrade, in a cluster with nodes of both operating systems."""
    return target_nodes_from_options(release, build, runtime, network, tuple(features), True)


def rehearse_upgrade(
    reading: SourcesRead,
    before: TargetNodes,
    after: TargetNodes,
    config: LintConfig,
    live: Iterable[ManifestObject] = (),
) -> UpgradeReport:
    """Checks the objects against both kinds of nodes, and for what only an upgrade breaks."""
    live = list(live)
    old, new = before.nodes[0].target, after.nodes[0].target
    report = UpgradeReport(old, new, problems=list(reading.problems))
    first = lint_sources(reading, before, config, live).findings
    second = lint_sources(reading, after, config, live).findings
    first, second = _different(first, second), _different(second, first)
    known = {_key(finding): finding for finding in first}
    later = {_key(finding) for finding in second}
    for finding in second:
        if _key(finding) not in known:
            outcome: Outcome = "breaks" if finding.severity == "error" else "changes"
            report.items.append(_item(finding, outcome))
    report.items += [_item(one, "works") for key, one in known.items() if key not in later]
    objects = [*live, *(obj for source in reading.sources for obj in _objects(source))]
    report.objects = len(objects)
    for obj in objects:
        for check in UPGRADE_CHECKS:
            report.items += check(obj, old, new)
    report.items += find_pod_security(objects, old, new)
    report.nodes = list(_node_records(old, new))
    return report


def _objects(source: Any) -> Iterator[ManifestObject]:
    return (obj for obj in manifest_objects(source) if not isinstance(obj, BrokenDocument))


def _different(findings: list[LintFinding], others: list[LintFinding]) -> list[LintFinding]:
    """Without those whose record states of the same field what another record states on the other
    nodes: such a field has the same effect before and after.
    """
    same = {(*_key(one)[1:], one.limit.effect): one.id for one in others if one.limit.fields}
    return [
        one
        for one in findings
        if same.get((*_key(one)[1:], one.limit.effect), one.id) == one.id or not one.limit.fields
    ]


def _key(finding: LintFinding) -> tuple[str, str, str, str]:
    name = finding.obj.name if finding.obj is not None else ""
    return finding.id, finding.source.name, name, finding.path


def _item(finding: LintFinding, outcome: Outcome) -> UpgradeItem:
    line = finding.place[0]
    place = f"{finding.source.name}:{line}" if line else finding.source.name
    what = title_of(finding.obj) if finding.obj is not None else ""
    remedy = finding.remedy or finding.limit.remedy
    return UpgradeItem(finding.limit, outcome, what, place, finding.path, finding.message, remedy)


def _node_records(old: NodeTarget, new: NodeTarget) -> Iterator[tuple[Outcome, WindowsLimit]]:
    """Limits of nodes that no manifest shows."""
    for number in (6, 12):
        if begins_between(number, old, new):
            yield "changes", upgrade_record(number)
    if old.runtime == "docker" and new.runtime == "containerd":
        yield "changes", upgrade_record(8)
    for limit in LIMITS.values():
        if limit.severity != "none":
            continue
        before, after = record_holds(limit, old), record_holds(limit, new)
        if after and not before:
            yield "changes", limit
        elif before and not after:
            yield "works", limit
