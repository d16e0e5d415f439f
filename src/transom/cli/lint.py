"""`transom lint`: what manifests will do on Windows nodes."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cli import console

if TYPE_CHECKING:
    from transom.lint.config import Config
    from transom.lint.engine import Report
    from transom.lint.findings import Finding
    from transom.lint.live import Cluster
    from transom.lint.objects import Object
    from transom.lint.sources import Reading
    from transom.windows.landscape import Landscape

HELP = """\
Say what manifests will do on Windows nodes, before production does.

Looked at are files, folders (*.yaml, *.yml, *.json), standard input (-) and, with --kubeconfig, --context or --name and
without paths, the objects of a live cluster. Nothing is said about pods for Linux, except where they may land on a Windows
node: in a cluster that is said or known to have both, or in a folder that has pods for both.

Exit code 0: no finding at or above --fail-on. 1: there are some. 2: something could not be read."""
EXAMPLES = """\
  transom lint deploy/
  helm template ./chart | transom lint - --release 1.25 --build ltsc2022
  kustomize build . | transom lint - --output sarif > lint.sarif
  transom lint deploy/ --kubeconfig ~/.kube/config      judge files for the nodes of a cluster
  transom lint --context production                     judge what runs there
  transom lint deploy/ --fix --diff                     show what --fix would change"""

_FORMS = ("text", "json", "sarif", "github", "junit")
_LEVELS = ("error", "warning", "info")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, folders, or - (default: the folder you are in)")
    nodes = parser.add_argument_group("what to judge for")
    nodes.add_argument("--release", metavar="X.Y", help="Kubernetes release of the nodes (default: 1.20)")
    nodes.add_argument("--build", metavar="BUILD", help="Windows build of the nodes: 17763, 10.0.17763, ltsc2019, 1809")
    nodes.add_argument("--runtime", choices=("docker", "containerd"), help="their container runtime")
    nodes.add_argument("--network", choices=("l2bridge", "l2tunnel", "overlay", "transparent", "nat"), help="network mode")
    nodes.add_argument(
        "--feature", action="append", default=[], metavar="NAME", help="what the nodes have: dsr, csi-proxy, hyperv, a gate"
    )
    nodes.add_argument(
        "--mixed", action=argparse.BooleanOptionalAction, help="the cluster has nodes of both systems, or has not"
    )
    console.target_options(parser)
    parser.add_argument("--namespace", "-n", default="", metavar="NAME", help="of a live cluster (default: all)")
    report = parser.add_argument_group("report")
    report.add_argument("-o", "--output", choices=_FORMS, default="text", help="form of the report (default: %(default)s)")
    report.add_argument("--output-file", type=Path, metavar="FILE", help="write the report there")
    report.add_argument("--fail-on", choices=(*_LEVELS, "none"), help="exit with 1 from this severity on (default: warning)")
    report.add_argument("--level", choices=_LEVELS, default="info", help="tell findings from this severity on (default: info)")
    report.add_argument("--ignore", action="append", default=[], metavar="ID", help="say nothing of this, such as WIN-SEC-*")
    report.add_argument("--exclude", action="append", default=[], metavar="GLOB", help="leave out such files of folders")
    config = parser.add_mutually_exclusive_group()
    config.add_argument("--config", type=Path, metavar="FILE", help="default: .transom-lint.yaml here or above")
    config.add_argument("--no-config", action="store_true", help="read no configuration file")
    mend = parser.add_argument_group("mending")
    mend.add_argument("--fix", action="store_true", help="make the safe changes; comments and layout stay")
    mend.add_argument("--diff", action="store_true", help="with --fix: show the changes, write nothing")


def run(args: argparse.Namespace) -> int:
    if args.diff and not args.fix:
        return _refuse("--diff goes with --fix")
    # Positions of a large repository are millions of small objects, none of them garbage before the end.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _lint(args)
    finally:
        if collecting:
            gc.enable()


def _lint(args: argparse.Namespace) -> int:
    from transom.lint.config import ConfigError
    from transom.lint.sources import STDIN, read

    live = bool(args.name or args.kubeconfig or args.context)
    try:
        config = _config(args)
        cluster = _cluster(args) if live else None
        landscape = _landscape(args, config, cluster)
    except ConfigError as error:
        return _refuse(str(error))
    paths = args.paths or list(config.paths) or ([] if live else ["."])
    if args.fix and live and not paths:
        return _refuse("--fix changes files: name some")
    reading = read(paths, (*config.exclude, *args.exclude))
    for problem in reading.problems:
        console.failure(problem)
    if cluster is not None:
        reading.notes += cluster.notes
    report = _report(args, reading, landscape, config, cluster.objects if cluster is not None else [])
    code = 2 if report.problems else int(report.at_or_above(args.fail_on or config.fail_on or "warning"))
    _tell(args, report, sys.stderr if args.fix and (STDIN in paths or args.diff) else sys.stdout)
    return code


def _report(
    args: argparse.Namespace, reading: Reading, landscape: Landscape, config: Config, objects: list[Object]
) -> Report:
    from transom.lint.engine import lint

    report = lint(reading, landscape, config, objects)
    if not args.fix:
        return report
    latest = [report]

    def look() -> list[Finding]:
        latest[0] = lint(reading, landscape, config, objects)
        return latest[0].findings

    _mend(args, reading, look)
    return latest[0]


def _mend(args: argparse.Namespace, reading: Reading, look: Any) -> None:
    from transom.lint.fixes.apply import mend
    from transom.lint.sources import write

    mended, _ = mend(reading.sources, look)
    fixed = sum(len(one.fixed) for one in mended)
    for one in mended:
        if args.diff:
            print(one.diff(), end="")
        elif one.source.path is not None:
            write(one.source, one.after)
    stream = next((source for source in reading.sources if source.path is None), None)
    if stream is not None and not args.diff:
        print(stream.text.text, end="")
    verb = "could be mended" if args.diff else "mended"
    console.tell(f"{verb}: {fixed} {'finding' if fixed == 1 else 'findings'} in {len(mended)} "
                 f"{'file' if len(mended) == 1 else 'files'}")


def _config(args: argparse.Namespace) -> Config:
    from dataclasses import replace

    from transom.lint import config

    found = None if args.no_config else args.config or config.find(Path.cwd())
    settings = config.load(found) if found is not None else config.Config()
    ids = tuple(part for text in args.ignore for part in text.replace(",", " ").split())
    return replace(settings, ignore=(*settings.ignore, (ids, ()))) if ids else settings


def _landscape(args: argparse.Namespace, config: Config, cluster: Cluster | None) -> Landscape:
    from transom.lint.config import ConfigError, build, release
    from transom.windows import landscape

    said = config.target
    features = (*said.features, *args.feature)
    network = args.network or said.network
    if cluster is not None:
        if args.release or args.build or args.runtime:
            raise ConfigError("the nodes of a cluster have their own release, build and runtime: leave the options out")
        return landscape.of_nodes(cluster.nodes, features, network)
    return landscape.described(
        release(args.release) if args.release else said.release, build(args.build) if args.build else said.build,
        args.runtime or said.runtime, network, features, args.mixed if args.mixed is not None else said.mixed,
    )


def _cluster(args: argparse.Namespace) -> Cluster:
    import asyncio

    from transom.client.api import Unreachable
    from transom.client.http import HttpClient
    from transom.client.kubeconfig import KubeconfigError, load
    from transom.kit.clock import RealClock
    from transom.lint import live
    from transom.lint.config import ConfigError
    from transom.machinery.errors import ApiError

    async def ask() -> Cluster:
        client = HttpClient(load(console.target(args), args.context), RealClock(), user_agent="transom-lint")
        name = args.context or args.name or "cluster"
        try:
            return await live.read(client, name, namespace=args.namespace, all_kinds=not args.paths)
        finally:
            await client.close()

    try:
        return asyncio.run(ask())
    except (KubeconfigError, Unreachable, ApiError, OSError) as error:
        raise ConfigError(f"the cluster cannot be asked: {error}") from error


def _tell(args: argparse.Namespace, report: Report, out: Any) -> None:
    from transom.lint.findings import RANK
    from transom.lint.output import MACHINE
    from transom.lint.output.text import render

    report.findings = [one for one in report.findings if RANK[one.severity] >= RANK[args.level]]
    if args.output == "text":
        coloured = args.output_file is None and out.isatty() and not os.environ.get("NO_COLOR")
        text = render(report, coloured and os.environ.get("TERM") != "dumb")
    else:
        text = MACHINE[args.output](report)
    if args.output_file is not None:
        args.output_file.write_text(text, encoding="utf-8")
    else:
        out.write(text)


def _refuse(message: str) -> int:
    console.failure(message)
    return 2
