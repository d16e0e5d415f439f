"""`transom matrix`: what a release of Kubernetes can do on Windows nodes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from transom.cli import console

if TYPE_CHECKING:
    from transom.windows.records import Record, Release, Target
    from transom.windows.releases import Facts

HELP = """\
Print what works on Windows nodes and what does not: builds, runtimes and features of a release, then every record that
holds there. --document prints the statements of the documents instead: for each its record, what this cluster does, and
the test that shows it."""
EXAMPLES = """\
  transom matrix
  transom matrix --release 1.14
  transom matrix --build 2004 --runtime containerd --network overlay
  transom matrix --document
  transom matrix --release 1.25 --output json"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--release", metavar="RELEASE", default="1.20", help="a Kubernetes release (default: %(default)s)")
    parser.add_argument("--build", metavar="BUILD", help="a Windows build: 17763, 1809, ltsc2019 (default: any)")
    parser.add_argument("--runtime", choices=("docker", "containerd"), help="default: any")
    parser.add_argument(
        "--network", choices=("l2bridge", "l2tunnel", "overlay", "transparent", "nat"), help="a network mode (default: any)"
    )
    parser.add_argument(
        "--features", default="", metavar="A,B", help="what its owner has turned on: dsr, csi-proxy, feature gates by name"
    )
    parser.add_argument("--document", action="store_true", help="the documents' statements and what becomes of them")
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    target = _target(args)
    if target is None:
        return 2
    if args.document:
        return _document(target.release, args.output)
    records = _holding(target)
    if args.output != "text":
        console.show(_machine(target, records), args.output)
    else:
        _page(target, records)
    return 0


def _target(args: argparse.Namespace) -> Target | None:
    from transom.windows import builds, releases
    from transom.windows.records import Target

    try:
        release = releases.parse(args.release)
    except ValueError as problem:
        console.failure(str(problem), "write it as 1.20")
        return None
    if release < min(releases.RELEASES):
        console.failure(f"Kubernetes {args.release} has no Windows nodes", "the first release with them is 1.14")
        return None
    build = builds.by_name(args.build) if args.build else None
    if args.build and build is None:
        known = ", ".join(str(number) for number in builds.BUILDS)
        console.failure(f"unknown Windows build {args.build!r}", f"known are {known}, and their names")
        return None
    features = frozenset(part.strip() for part in args.features.split(",") if part.strip())
    return Target(release, build.number if build else None, args.runtime, args.network, features)


def _holding(target: Target) -> list[Record]:
    """Everything that such a node may meet: also what a feature would make possible, and what a missing update forbids."""
    from transom.windows import match
    from transom.windows.limits import LIMITS
    from transom.windows.support import SUPPORT

    possible = target.features.union(*(record.needs for record in SUPPORT.values()))
    return [
        *match.select(SUPPORT.values(), target._replace(features=possible)),
        *match.select(LIMITS.values(), target._replace(revision=0)),
    ]


def _machine(target: Target, records: list[Record]) -> dict[str, Any]:
    from transom.cli.explain import document
    from transom.windows import releases

    facts = releases.facts(target.release)
    return {
        "release": releases.text(target.release),
        "builds": list(facts.builds),
        "runtimes": facts.runtimes(),
        "pauseImage": facts.pause,
        "features": {gate.name: gate.stage(target.release) for gate in releases.GATES.values() if gate.stage(target.release)},
        "records": [document(record) for record in records],
    }


def _page(target: Target, records: list[Record]) -> None:
    from transom.windows import releases, wording
    from transom.windows.records import Limit

    facts = releases.facts(target.release)
    _head(target.release, facts)
    print()
    works = [record for record in records if not isinstance(record, Limit) and record.kind == "supported"]
    limits = [record for record in records if isinstance(record, Limit)]
    rows: list[tuple[str, ...]] = [("SUPPORTED", "", "STAGE", "HOLDS")]
    rows += [(record.id, record.title, record.stage, wording.where(record)) for record in works]
    console.table(rows)
    print()
    console.table([("LIMIT", "", "EFFECT", "HOLDS"),
                   *((limit.id, limit.title, limit.effect, wording.where(limit)) for limit in limits)])
    console.tell("\n`transom explain ID` tells more of each")


def _head(release: Release, facts: Facts) -> None:
    from transom.windows import releases, wording

    print(console.paint(f"Kubernetes {releases.text(release)} on Windows", "bold"))
    print(f"Builds:    {', '.join(wording.build_name(number) for number in facts.builds)}")
    print(f"Runtimes:  {', '.join(f'{name} {version} or later' for name, version in facts.runtimes().items())}")
    print(f"Pause:     {facts.pause}")
    stages: dict[str, list[str]] = {}
    for gate in releases.GATES.values():
        stage = gate.stage(release)
        if stage:
            stages.setdefault(stage, []).append(gate.name)
    for i, stage in enumerate(stage for stage in ("stable", "beta", "alpha", "deprecated") if stage in stages):
        print(f"{'Features:' if i == 0 else '':<11}{stage}: {', '.join(stages[stage])}")


def _document(release: Release, output: str) -> int:
    from transom.windows import statements

    rows = statements.rows(release)
    if output != "text":
        console.show([row._asdict() for row in rows], output)
        return 0
    console.table([
        ("STATEMENT", "ABOUT", "RECORD", "THIS CLUSTER", "SHOWN BY"),
        *((row.id, row.about, ", ".join(row.records), row.does, _first(row.tests)) for row in rows),
    ])
    shown = sum(1 for row in rows if row.tests)
    console.tell(f"\n{len(rows)} statements, {shown} with tests that show them")
    return 0


def _first(tests: list[str]) -> str:
    return f"{tests[0]} and {len(tests) - 1} more" if len(tests) > 1 else "".join(tests)
