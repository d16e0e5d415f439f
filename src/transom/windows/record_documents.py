"""Records about Windows as documents, for programs and pages: which records apply to a node, and all
that is known of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.windows import match, releases, wording
from transom.windows.limits import LIMITS
from transom.windows.records import NodeTarget, Record, WindowsLimit
from transom.windows.support import SUPPORT


def matrix_records(target: NodeTarget) -> list[Record]:
    """Everything that such a node may support, including what depends on a feature or a missing
    update.
    """
    possible = target.features.union(*(record.needs for record in SUPPORT.values()))
    return [
        *match.select_records(SUPPORT.values(), target._replace(features=possible)),
        *match.select_records(LIMITS.values(), target._replace(revision=0)),
    ]


def matrix_document(target: NodeTarget, records: Sequence[Record]) -> dict[str, Any]:
    """What a release supports on Windows nodes."""
    facts = releases.release_facts(target.release)
    return {
        "release": releases.release_text(target.release),
        "builds": list(facts.builds),
        "runtimes": facts.runtimes(),
        "pauseImage": facts.pause,
        "features": {
            gate.name: gate.stage(target.release)
            for gate in releases.GATES.values()
            if gate.stage(target.release)
        },
        "records": [record_document(record) for record in records],
    }


def record_document(record: Record) -> dict[str, Any]:
    """A record for programs: all fields that are set."""
    raw = record._asdict()
    shown: dict[str, Any] = {name: raw[name] for name in ("id", "title", "statement")}
    shown["type"] = "limit" if isinstance(record, WindowsLimit) else "support"
    shown["where"] = wording.record_location(record)
    for name, value in raw.items():
        if name in shown or value in ("", (), None, (0, None)):
            continue
        shown[name] = _plain(value)
    shown["page"] = wording.documentation_page(record)
    return shown


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(inner) for name, inner in value._asdict().items() if inner != ""}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value
