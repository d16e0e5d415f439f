"""`transom matrix`: what a Kubernetes release supports on Windows nodes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from transom.cli import console
from transom.cli.command import Command

if TYPE_CHECKING:
    from transom.windows.records import NodeTarget, Record, Release
    from transom.windows.releases import FeatureGate, ReleaseFacts

HELP = """\
Print what works on Windows nodes and what does not: builds, runtimes and features of a release,
then each record that applies. --document follows the Kubernetes documentation instead: each of
its points with its record and the behaviour of Transom."""
EXAMPLES = """\
  transom matrix
  transom matrix --release 1.14
  transom matrix --build 2004 --runtime containerd --network overlay
  transom matrix --document
  transom matrix --release 1.20 --release 1.36 --diff
  transom matrix --release 1.25 --output json"""


def add_matrix_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--release",
        metavar="RELEASE",
        action="append",
        help="a Kubernetes release (default: 1.20); with --diff two of them",
    )
    parser.add_argument(
        "--build", metavar="BUILD", help="a Windows build: 17763, 1809, ltsc2019 (default: any)"
    )
    parser.add_argument("--runtime", choices=("docker", "containerd"), help="default: any")
    parser.add_argument(
        "--network",
        choices=("l2bridge", "l2tunnel", "overlay", "transparent", "nat"),
        help="a network mode (default: any)",
    )
    parser.add_argument(
        "--features",
        default="",
        metavar="A,B",
        help="features that are on: dsr, csi-proxy, feature gates",
    )
    parser.add_argument(
        "--diff", action="store_true", help="show what differs between two releases"
    )
    parser.add_argument(
        "--document", action="store_true", help="follow the points of the Kubernetes documentation"
    )
    console.add_output_option(parser)


def run_matrix_command(args: argparse.Namespace) -> int:
    named = args.release or ["1.20"]
    if len(named) != (2 if args.diff else 1):
        console.print_failure(
            "--diff needs two releases" if args.diff else "several releases need --diff",
            "for example transom matrix --release 1.20 --release 1.36 --diff",
        )
        return 2
    targets = [_target(args, release) for release in named]
    target = targets[0]
    if target is None or targets[-1] is None:
        return 2
    if args.diff:
        return _difference(target, targets[-1], args.output)
    if args.document:
        return _document(target.release, args.output)
    from transom.windows.record_documents import matrix_document, matrix_records

    records = matrix_records(target)
    if args.output != "text":
        console.print_value(matrix_document(target, records), args.output)
    else:
        _page(target, records)
    return 0


def _target(args: argparse.Namespace, named: str) -> NodeTarget | None:
    from transom.windows import builds, registry
    from transom.windows.records import NodeTarget

    try:
        release = registry.known_release(named)
        features = registry.known_features(
            part.strip() for part in args.features.split(",") if part.strip()
        )
    except ValueError as problem:
        console.print_failure(str(problem))
        return None
    build = builds.build_by_name(args.build) if args.build else None
    if args.build and build is None:
        known = ", ".join(str(number) for number in builds.BUILDS)
        console.print_failure(
            f"unknown Windows build {args.build!r}", f"known builds: {known}, and their names"
        )
        return None
    return NodeTarget(
        release, build.number if build else None, args.runtime, args.network, frozenset(features)
    )


def _difference(before: NodeTarget, after: NodeTarget, output: str) -> int:
    """Prints what a later release adds (+), changes and removes (-)."""
    from transom.windows import releases
    from transom.windows.record_documents import matrix_document, matrix_records
    from transom.windows.records import WindowsLimit

    old, new = matrix_document(before, []), matrix_document(after, [])
    facts = {
        name: {"before": old[name], "after": new[name]}
        for name in ("builds", "runtimes", "pauseImage")
        if old[name] != new[name]
    }
    stages = {
        gate.name: {"before": _stage(gate, before.release), "after": _stage(gate, after.release)}
        for gate in releases.GATES.values()
        if _stage(gate, before.release) != _stage(gate, after.release)
    }
    first, second = (
        {record.id: record for record in matrix_records(target)} for target in (before, after)
    )
    added = [record for id, record in second.items() if id not in first]
    removed = [record for id, record in first.items() if id not in second]
    if output != "text":
        shown = {
            "from": releases.release_text(before.release),
            "to": releases.release_text(after.release),
            "facts": facts,
            "features": stages,
            "added": [record.id for record in added],
            "removed": [record.id for record in removed],
        }
        console.print_value(shown, output)
        return 0
    ends = [releases.release_text(target.release) for target in (before, after)]
    print(console.colour_text(f"Windows in Kubernetes {ends[0]} and {ends[1]}", "bold"))
    print()
    console.print_table(
        [
            ("", *ends),
            *(
                (name, _shown_fact(both["before"]), _shown_fact(both["after"]))
                for name, both in facts.items()
            ),
            *((name, both["before"] or "-", both["after"] or "-") for name, both in stages.items()),
        ]
    )
    print()
    rows: list[tuple[str, ...]] = [("", "RECORD", "", "")]
    for sign, records in (("-", removed), ("+", added)):
        rows += [
            (
                sign,
                record.id,
                "limitation" if isinstance(record, WindowsLimit) else "supported",
                record.title,
            )
            for record in records
        ]
    console.print_table(rows)
    console.print_progress(f"\n{len(removed)} records end, {len(added)} begin")
    return 0


def _stage(gate: FeatureGate, release: Release) -> str:
    stage = gate.stage(release)
    return f"{stage} ({'on' if gate.default(release) else 'off'})" if stage else ""


def _shown_fact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _page(target: NodeTarget, records: list[Record]) -> None:
    from transom.windows import releases, wording
    from transom.windows.records import WindowsLimit

    facts = releases.release_facts(target.release)
    _head(target.release, facts)
    print()
    works = [
        record
        for record in records
        if not isinstance(record, WindowsLimit) and record.kind == "supported"
    ]
    limits = [record for record in records if isinstance(record, WindowsLimit)]
    rows: list[tuple[str, ...]] = [("SUPPORTED", "", "STAGE", "APPLIES")]
    rows += [
        (record.id, record.title, record.stage, wording.record_location(record)) for record in works
    ]
    console.print_table(rows)
    print()
    console.print_table(
        [
            ("LIMITATION", "", "EFFECT", "APPLIES"),
            *(
                (limit.id, limit.title, limit.effect, wording.record_location(limit))
                for limit in limits
            ),
        ]
    )
    console.print_progress("\n`transom explain ID` shows details")


def _head(release: Release, facts: ReleaseFacts) -> None:
    from transom.windows import releases, wording

    print(console.colour_text(f"Kubernetes {releases.release_text(release)} on Windows", "bold"))
    print(f"Builds:    {', '.join(wording.build_name(number) for number in facts.builds)}")
    print(
        "Runtimes:  "
        f"{', '.join(f'{name} {version} or later' for name, version in facts.runtimes().items())}"
    )
    print(f"Pause:     {facts.pause}")
    stages: dict[str, list[str]] = {}
    for gate in releases.GATES.values():
        stage = gate.stage(release)
        if stage:
            stages.setdefault(stage, []).append(gate.name)
    for i, stage in enumerate(
        stage for stage in ("stable", "beta", "alpha", "deprecated") if stage in stages
    ):
        print(f"{'Features:' if i == 0 else '':<11}{stage}: {', '.join(stages[stage])}")


def _document(release: Release, output: str) -> int:
    from transom.windows import statements

    rows = statements.statement_rows(release)
    if output != "text":
        console.print_value([row._asdict() for row in rows], output)
        return 0
    console.print_table(
        [
            ("POINT", "ABOUT", "RECORD", "TRANSOM"),
            *((row.id, row.about, ", ".join(row.records), row.does) for row in rows),
        ]
    )
    console.print_progress(f"\n{len(rows)} points")
    return 0


COMMAND = Command(HELP, EXAMPLES, add_matrix_arguments, run_matrix_command)
