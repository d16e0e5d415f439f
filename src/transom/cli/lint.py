"""`transom lint`: check how manifests will behave on Windows nodes."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cli import console
from transom.cli.command import Command, file_path
from transom.cli.node_targets import add_node_target_options

if TYPE_CHECKING:
    from transom.lint.config import LintConfig
    from transom.lint.engine import LintReport
    from transom.lint.findings import LintFinding
    from transom.lint.live import LiveCluster
    from transom.lint.objects import ManifestObject
    from transom.lint.sources import SourcesRead
    from transom.windows.target_nodes import TargetNodes

HELP = """\
Check manifests for problems on Windows nodes before you deploy them.

It reads files, folders (*.yaml, *.yml, *.json), standard input (-) and, with --kubeconfig, --context or --name and without
paths, the objects of a live cluster. Linux pods are checked only if they can be scheduled to a
Windows node: in a cluster with nodes of both operating systems, or in a folder with pods for
both.

The exit code is 0 if there is no finding at or above --fail-on, 1 if there is one, 2 if something could not be read."""
EXAMPLES = """\
  transom lint deploy/
  helm template ./chart | transom lint - --release 1.25 --build ltsc2022
  kustomize build . | transom lint - --output sarif > lint.sarif
  transom lint deploy/ --kubeconfig ~/.kube/config      check files against the nodes of a cluster
  transom lint --context production                     check the objects of this cluster
  transom lint deploy/ --from 1.20/17763/docker --to 1.36/20348/containerd
  transom lint deploy/ --fix --diff                     show what --fix would change"""

_FORMS = ("text", "json", "sarif", "github", "junit")
_LEVELS = ("error", "warning", "info")


def add_lint_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files, folders, or - (default: the current folder)",
    )
    nodes = parser.add_argument_group("nodes to check against")
    add_node_target_options(nodes)
    nodes.add_argument(
        "--mixed",
        action=argparse.BooleanOptionalAction,
        help="whether the cluster has nodes of both operating systems",
    )
    upgrade = parser.add_argument_group("upgrade rehearsal")
    upgrade.add_argument(
        "--from",
        dest="upgrade_from",
        metavar="NODES",
        help="nodes now: 1.20/17763/docker (default: those of the cluster)",
    )
    upgrade.add_argument(
        "--to",
        dest="upgrade_to",
        metavar="NODES",
        help="nodes after an upgrade: 1.36/20348/containerd; reports what breaks and what to change",
    )
    console.add_target_options(parser)
    parser.add_argument(
        "--namespace",
        "-n",
        default="",
        metavar="NAMESPACE",
        help="namespace of a live cluster (default: all)",
    )
    report = parser.add_argument_group("report")
    report.add_argument(
        "-o",
        "--output",
        choices=_FORMS,
        default="text",
        help="format of the report (default: %(default)s)",
    )
    report.add_argument(
        "--output-file", type=file_path, metavar="FILE", help="write the report to this file"
    )
    report.add_argument(
        "--fail-on",
        choices=(*_LEVELS, "none"),
        help="exit with 1 at this severity or above (default: warning)",
    )
    report.add_argument(
        "--level",
        choices=_LEVELS,
        default="info",
        help="report findings at this severity or above (default: info)",
    )
    report.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="ID",
        help="do not report these findings, for example WIN-SEC-*",
    )
    report.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="GLOB",
        help="skip these files in folders",
    )
    config = parser.add_mutually_exclusive_group()
    config.add_argument(
        "--config", type=file_path, metavar="FILE", help="default: .transom-lint.yaml here or above"
    )
    config.add_argument("--no-config", action="store_true", help="read no configuration file")
    fixes = parser.add_argument_group("fixes")
    fixes.add_argument(
        "--fix", action="store_true", help="apply safe fixes; comments and layout are kept"
    )
    fixes.add_argument(
        "--diff", action="store_true", help="with --fix: show the changes without writing them"
    )


def run_lint_command(args: argparse.Namespace) -> int:
    if args.diff and not args.fix:
        return _refuse("--diff goes with --fix")
    if args.upgrade_from and not args.upgrade_to:
        return _refuse("--from goes with --to")
    if args.upgrade_to and (args.fix or args.output not in ("text", "json")):
        return _refuse("--to prints text or json, and fixes nothing")
    # Positions of a large repository are millions of small objects, and none of them is garbage
    # before the end.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _lint(args)
    finally:
        if collecting:
            gc.enable()


def _lint(args: argparse.Namespace) -> int:
    from transom.lint.config import LintConfigError
    from transom.lint.sources import STDIN, read_sources

    live = bool(args.name or args.kubeconfig or args.context)
    try:
        config = _config(args)
        cluster = _cluster(args) if live else None
        if args.upgrade_to:
            return _rehearse(args, config, cluster)
        target_nodes = _target_nodes(args, config, cluster)
    except LintConfigError as error:
        return _refuse(str(error))
    paths = args.paths or list(config.paths) or ([] if live else ["."])
    if args.fix and live and not paths:
        return _refuse("--fix needs the files to change")
    reading = read_sources(paths, (*config.exclude, *args.exclude))
    for problem in reading.problems:
        console.print_failure(problem)
    if cluster is not None:
        reading.notes += cluster.notes
    report = _report(
        args, reading, target_nodes, config, cluster.objects if cluster is not None else []
    )
    code = (
        2
        if report.problems
        else int(report.at_or_above(args.fail_on or config.fail_on or "warning"))
    )
    _print_report(
        args, report, sys.stderr if args.fix and (STDIN in paths or args.diff) else sys.stdout
    )
    return code


def _rehearse(args: argparse.Namespace, config: LintConfig, cluster: LiveCluster | None) -> int:
    from transom.lint.config import LintConfigError
    from transom.lint.output.upgrade import render_upgrade, upgrade_document
    from transom.lint.sources import read_sources
    from transom.lint.upgrade import rehearse_upgrade
    from transom.windows.target_nodes import target_nodes_of_cluster

    after = _upgrade_nodes(args.upgrade_to, args)
    if args.upgrade_from:
        before = _upgrade_nodes(args.upgrade_from, args)
    elif cluster is not None:
        before = target_nodes_of_cluster(cluster.nodes, args.feature, args.network)
        if not before.nodes:
            raise LintConfigError("the cluster has no Windows nodes: --from is required")
    else:
        raise LintConfigError("--from is required without a cluster")
    paths = args.paths or list(config.paths) or ([] if cluster is not None else ["."])
    reading = read_sources(paths, (*config.exclude, *args.exclude))
    for problem in reading.problems:
        console.print_failure(problem)
    report = rehearse_upgrade(
        reading, before, after, config, cluster.objects if cluster is not None else []
    )
    if args.output == "json":
        console.print_value(upgrade_document(report), "json")
    else:
        print(render_upgrade(report), end="")
    return 2 if report.problems else int(bool(report.of("breaks")))


def _upgrade_nodes(text: str, args: argparse.Namespace) -> TargetNodes:
    """ "1.36/20348/containerd"; the runtime may be left out."""
    from transom.lint.config import LintConfigError, build_option, release_option
    from transom.lint.upgrade import upgrade_nodes

    release, _, rest = text.partition("/")
    build, _, runtime = rest.partition("/")
    if runtime not in ("", "docker", "containerd"):
        raise LintConfigError(f"unknown runtime {runtime!r}: choose docker or containerd")
    return upgrade_nodes(
        release_option(release),
        build_option(build) if build else None,
        runtime or None,  # type: ignore[arg-type]
        args.network,
        args.feature,
    )


def _report(
    args: argparse.Namespace,
    reading: SourcesRead,
    target_nodes: TargetNodes,
    config: LintConfig,
    objects: list[ManifestObject],
) -> LintReport:
    from transom.lint.engine import lint_sources

    report = lint_sources(reading, target_nodes, config, objects)
    if not args.fix:
        return report
    latest = [report]

    def look() -> list[LintFinding]:
        latest[0] = lint_sources(reading, target_nodes, config, objects)
        return latest[0].findings

    _apply_fixes(args, reading, look)
    return latest[0]


def _apply_fixes(args: argparse.Namespace, reading: SourcesRead, look: Any) -> None:
    from transom.lint.fixes.apply import apply_fixes
    from transom.lint.sources import write_source

    changed, _ = apply_fixes(reading.sources, look)
    fixed = sum(len(one.fixed) for one in changed)
    for one in changed:
        if args.diff:
            print(one.diff(), end="")
        elif one.source.path is not None:
            write_source(one.source, one.after)
    stream = next((source for source in reading.sources if source.path is None), None)
    if stream is not None and not args.diff:
        print(stream.text.text, end="")
    verb = "could be fixed" if args.diff else "fixed"
    console.print_progress(
        f"{verb}: {fixed} {'finding' if fixed == 1 else 'findings'} in {len(changed)} "
        f"{'file' if len(changed) == 1 else 'files'}"
    )


def _config(args: argparse.Namespace) -> LintConfig:
    from dataclasses import replace

    from transom.lint import config

    found = None if args.no_config else args.config or config.find_lint_config(Path.cwd())
    settings = config.load_lint_config(found) if found is not None else config.LintConfig()
    from transom.lint.config import record_ids as known_ids

    ids = known_ids(tuple(part for text in args.ignore for part in text.replace(",", " ").split()))
    return replace(settings, ignore=(*settings.ignore, (ids, ()))) if ids else settings


def _target_nodes(
    args: argparse.Namespace, config: LintConfig, cluster: LiveCluster | None
) -> TargetNodes:
    from transom.lint.config import LintConfigError, build_option, release_option
    from transom.lint.config import feature_options as known_features
    from transom.windows import target_nodes

    target = config.target
    features = (*target.features, *known_features(tuple(args.feature)))
    network = args.network or target.network
    if cluster is not None:
        if args.release or args.build or args.runtime:
            raise LintConfigError(
                "do not combine --release, --build and --runtime with a cluster: they come from "
                "its nodes"
            )
        return target_nodes.target_nodes_of_cluster(cluster.nodes, features, network)
    return target_nodes.target_nodes_from_options(
        release_option(args.release) if args.release else target.release,
        build_option(args.build) if args.build else target.build,
        args.runtime or target.runtime,
        network,
        features,
        args.mixed if args.mixed is not None else target.mixed,
    )


def _cluster(args: argparse.Namespace) -> LiveCluster:
    import asyncio

    from transom.client.api import ApiUnreachable
    from transom.client.http import HttpClient
    from transom.client.kubeconfig import KubeconfigError, load_kubeconfig
    from transom.kit.clock import RealClock
    from transom.lint import live
    from transom.lint.config import LintConfigError
    from transom.machinery.errors import ApiError

    async def ask() -> LiveCluster:
        client = HttpClient(
            load_kubeconfig(console.target_kubeconfig(args), args.context),
            RealClock(),
            user_agent="transom-lint",
        )
        name = args.context or args.name or "cluster"
        try:
            return await live.read_live_cluster(
                client, name, namespace=args.namespace, all_kinds=not args.paths
            )
        finally:
            await client.close()

    try:
        return asyncio.run(ask())
    except (KubeconfigError, ApiUnreachable, ApiError, OSError) as error:
        raise LintConfigError(f"cannot read the cluster: {error}") from error


def _print_report(args: argparse.Namespace, report: LintReport, out: Any) -> None:
    from transom.lint.findings import RANK
    from transom.lint.output import MACHINE
    from transom.lint.output.text import WIDTH, render_text

    report.findings = [one for one in report.findings if RANK[one.severity] >= RANK[args.level]]
    if args.output == "text":
        terminal = args.output_file is None and out.isatty()
        coloured = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        width = min(console.terminal_columns(WIDTH), WIDTH) if terminal else WIDTH
        text = render_text(report, terminal and coloured, width)
    else:
        text = MACHINE[args.output](report)
    if args.output_file is not None:
        args.output_file.write_text(text, encoding="utf-8")
    else:
        out.write(text)


def _refuse(message: str) -> int:
    console.print_failure(message)
    return 2


COMMAND = Command(HELP, EXAMPLES, add_lint_arguments, run_lint_command)
