"""Text for records, for the terminal and the documentation: no layout, no colours."""

from __future__ import annotations

from typing import Final

from transom.machinery.releases import NEWEST
from transom.windows.builds import BUILDS
from transom.windows.records import (
    ALL_NETWORKS,
    ALL_RUNTIMES,
    FIRST_RELEASE,
    Record,
    RecordField,
    Release,
    WindowsLimit,
    WindowsSupport,
)
from transom.windows.releases import release_text
from transom.windows.tables import CURRENT_PAGES

_CURRENT_DOCS: Final = "https://kubernetes.io/docs/"
_FIRST_INTRO: Final = "setup/production-environment/windows/intro-windows-in-kubernetes/"
_INTRO: Final = "concepts/windows/intro/"
_INTRO_SINCE: Final = (1, 24)  # the release whose documentation moved the page
_CURRENT_PAGE: Final = _CURRENT_DOCS + _INTRO
_LAST_INTRO_RELEASE: Final = (1, 20)

EFFECTS: Final = {
    "ignored": "has no effect",
    "rejected": "is rejected",
    "fails": "fails",
    "degraded": "behaves differently",
}
KINDS: Final = {
    "supported": "supported",
    "rule": "rule",
    "default": "default",
    "procedure": "how to",
    "symptom": "symptom",
    "planned": "planned",
}
AREAS: Final = {
    "OS": "Windows versions",
    "POD": "Pods",
    "HP": "HostProcess containers",
    "CTR": "Containers",
    "SEC": "Security",
    "RES": "Resources",
    "STO": "Storage",
    "NET": "Network",
    "SVC": "Services",
    "DNS": "DNS",
    "NODE": "Nodes",
    "RUN": "Runtimes",
    "API": "API",
    "GATE": "Feature gates",
    "PLAN": "Plans",
    "TRB": "Troubleshooting",
}
_TESTS: Final = {
    "set": "",
    "is": "is {}",
    "not": "is not {}",
    "one-of": "is one of {}",
    "none-of": "is none of {}",
    "matches": "matches {}",
    "above": "is above {}",
    "below": "is below {}",
    "longer": "has more than {} elements",
    "absent": "is missing",
}


def record_area(record: Record) -> str:
    """ "POD" of WIN-POD-003."""
    return record.id.split("-")[1]


def record_outcome(record: Record) -> str:
    """The outcome in a few words: "fails: FailedMount: ..."."""
    if isinstance(record, WindowsSupport):
        return (
            KINDS[record.kind]
            if record.stage == "stable"
            else f"{KINDS[record.kind]} ({record.stage})"
        )
    return ": ".join(
        part for part in (EFFECTS[record.effect], record.reason, record.message) if part
    )


def record_remedy(record: Record) -> str:
    """What to do about it."""
    return record.remedy if isinstance(record, WindowsLimit) else record.enable


def intro_page(release: Release) -> str:
    """Windows containers in Kubernetes, in the documentation of this release."""
    docs = _CURRENT_DOCS
    if release < NEWEST:
        docs = f"https://v{release[0]}-{release[1]}.docs.kubernetes.io/docs/"
    return docs + (_FIRST_INTRO if release < _INTRO_SINCE else _INTRO)


INTRO_PAGE: Final = intro_page(_LAST_INTRO_RELEASE)


def documentation_page(record: Record, release: Release | None = None) -> str:
    """The page of the Kubernetes documentation that describes it: that of `release`, or of the
    source documents for records of releases that they describe.
    """
    current = next((id for id in record.checklist if id.startswith("W-")), "")
    if current:
        return _CURRENT_DOCS + CURRENT_PAGES[current.split("-")[1]]
    if release is not None:
        return intro_page(release)
    return _CURRENT_PAGE if record.since > _LAST_INTRO_RELEASE else INTRO_PAGE


def record_location(record: Record) -> str:
    """Releases, builds, runtimes, networks and features where it applies; "everywhere" without
    restrictions.
    """
    parts = [_releases(record.since, record.until), _builds(record.builds)]
    if record.runtimes != ALL_RUNTIMES:
        parts.append(f"with {_any(record.runtimes)}")
    if record.networks != ALL_NETWORKS:
        parts.append(f"on {_any(record.networks)} networks")
    if record.needs:
        parts.append(f"with {' and '.join(record.needs)}")
    if record.patches:
        updates = " or ".join(f"{build}.{revision}" for build, revision in record.patches)
        parts.append(f"{'before' if isinstance(record, WindowsLimit) else 'from'} update {updates}")
    if isinstance(record, WindowsLimit) and record.lifted_by:
        parts.append(f"without {_any(record.lifted_by)}")
    return ", ".join(part for part in parts if part) or "everywhere"


def _releases(since: Release, until: Release | None) -> str:
    if since == FIRST_RELEASE:
        return f"up to {release_text(until)}" if until else ""
    if until is None:
        return f"from {release_text(since)}"
    return (
        f"in {release_text(since)}"
        if since == until
        else f"from {release_text(since)} to {release_text(until)}"
    )


def _builds(builds: tuple[int, int | None]) -> str:
    first, last = builds
    if not first:
        return f"up to build {last}" if last else ""
    if last is None:
        return f"from build {first}"
    return f"on build {first}" if first == last else f"on builds {first} to {last}"


def _any(words: tuple[str, ...]) -> str:
    return " or ".join(words)


def field_wording(field: RecordField) -> str:
    """ "spec.hostNetwork is true"."""
    value = field.value
    shown = ", ".join(map(_value, value)) if isinstance(value, tuple) else _value(value)
    path = field.path if field.kind == "Pod" else f"{field.kind} {field.path}"
    return f"{path} {_TESTS[field.test].format(shown)}".rstrip()


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def build_name(number: int) -> str:
    """ "17763 (Windows Server 2019, 1809)"."""
    build = BUILDS.get(number)
    if build is None:
        return str(number)
    names = [build.product.removesuffix(" Datacenter")] if build.channel == "LTSC" else []
    return f"{number} ({', '.join((*names, build.release))})"
