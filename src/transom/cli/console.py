"""What the verbs share: common options, output in three formats, colours on a terminal only."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cluster.config import DEFAULT_NAME, RELEASES
from transom.cluster.engines import ENGINES
from transom.cluster.netconfig import DATAPLANES, MODES

if TYPE_CHECKING:
    from transom.cluster.lifecycle import Wanted

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def name_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default=DEFAULT_NAME, metavar="CLUSTER", help="the cluster (default: %(default)s)")


def listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def target_options(parser: argparse.ArgumentParser) -> None:
    """Which API server a client talks to: a cluster of ours by name, or any by kubeconfig."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--name", metavar="CLUSTER", help="a cluster of this machine")
    where.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: what kubectl would use")
    parser.add_argument("--context", default="", metavar="NAME", help="default: the current context")


def target(args: argparse.Namespace) -> Path | None:
    """The kubeconfig that `target_options` asked for; None for what kubectl would use."""
    if args.name is None:
        return args.kubeconfig
    from transom.cluster import lifecycle

    return lifecycle.existing(args.name).own_kubeconfig


def output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("text", "json", "yaml"), default="text", help="output format (default: %(default)s)"
    )


def start_options(parser: argparse.ArgumentParser) -> None:
    """What `up` and `apiserver` take; left out, an option keeps the value of the cluster's last start."""
    name_option(parser)
    parser.add_argument("--port", type=port, metavar="N", help="port of the API server; 0 (default) picks a free one")
    parser.add_argument(
        "--release", choices=tuple(RELEASES), metavar="RELEASE", help="Kubernetes release to be (default: 1.20)"
    )
    parser.add_argument(
        "--nodes", action=argparse.BooleanOptionalAction, help="with nodes (default), or the control plane alone"
    )
    _node_options(parser)
    parser.add_argument(
        "--kubeconfig",
        type=absolute,
        metavar="FILE",
        help="kubeconfig to put the context into",
    )
    parser.add_argument(
        "--feature-gates", type=listed, metavar="A=true,B=false", help="features to turn on or off, by Kubernetes' names"
    )
    audit = parser.add_mutually_exclusive_group()
    audit.add_argument("--audit-policy", type=absolute, metavar="FILE", help="record requests as this policy says")
    audit.add_argument("--no-audit", action="store_true", help="record no requests any more")
    parser.add_argument(
        "--audit-log", type=absolute, metavar="FILE", help="where requests are recorded (default: in the state folder)"
    )
    parser.add_argument(
        "--encrypt", action=argparse.BooleanOptionalAction, help="keep Secrets encrypted on disk, or no longer"
    )
    parser.add_argument(
        "--encryption-key-file",
        type=absolute,
        metavar="FILE",
        help="the keys for that (default: a key made for the cluster, in its state folder)",
    )


def _node_options(parser: argparse.ArgumentParser) -> None:
    """At the first start, and whenever one of them is given: then the cluster's nodes are made anew."""
    nodes = parser.add_argument_group("nodes")
    nodes.add_argument("--linux", type=_count, metavar="N", help="Linux workers (default: 1)")
    nodes.add_argument("--windows", type=_count, metavar="N", help="Windows workers (default: 2)")
    nodes.add_argument("--build", type=int, metavar="N", help="their Windows build (default: 17763, Windows Server 2019)")
    nodes.add_argument(
        "--taint-windows", action="store_true", help="give Windows nodes the taint os=windows:NoSchedule"
    )
    nodes.add_argument(
        "--runtime", choices=ENGINES, metavar="ENGINE",
        help="what runs containers: sim (default); oci, real processes by runc and Wine, which needs root; auto, the best here",
    )
    nodes.add_argument(
        "--network", choices=MODES, metavar="MODE",
        help=f"how Windows pods are joined: {', '.join(MODES)} (default: l2bridge); see docs/network-modes.md",
    )
    nodes.add_argument(
        "--dataplane", choices=DATAPLANES, metavar="PLANE",
        help="what carries packets: model (default), or kernel, namespaces of this machine, which needs root",
    )
    nodes.add_argument(
        "--dual-stack", action="store_true", default=None,
        help="addresses of IPv4 and IPv6 for nodes, pods and services; see docs/dual-stack.md",
    )
    parser.add_argument(
        "--warn-windows", action=argparse.BooleanOptionalAction,
        help="warn of pods that use what Windows cannot do (default), or not",
    )
    parser.add_argument(
        "--reject-windows", type=listed, metavar="IDS",
        help="refuse pods for Windows by records: WIN-POD-003,WIN-STO-*; '' for no longer any",
    )
    nodes.add_argument("--config", type=absolute, metavar="FILE", help="a cluster file that says what each node is")


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 5000:
        raise argparse.ArgumentTypeError("a cluster has 0 to 5000 nodes of a kind")
    return value


def wanted(args: argparse.Namespace) -> Wanted:
    """What the options say."""
    from transom.cluster.lifecycle import Wanted, WantedNodes
    from transom.cluster.netconfig import WantedNetwork
    from transom.cluster.protection import Protection
    from transom.cluster.windows import Windows

    protection = Protection(args.audit_policy, args.audit_log, args.no_audit, args.encrypt, args.encryption_key_file)
    return Wanted(args.name, args.port, args.release, args.nodes, args.kubeconfig, protection, args.feature_gates,
                  WantedNodes(args.linux, args.windows, args.build, args.taint_windows, args.config),
                  Windows(args.warn_windows, args.reject_windows),
                  WantedNetwork(args.network, args.dataplane, args.dual_stack), args.runtime)


def port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return value


def absolute(text: str) -> Path:
    return Path(text).expanduser().absolute()


def show(value: Any, output: str) -> None:
    """Machine-readable output."""
    if output == "json":
        print(json.dumps(value, indent=2))
    else:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, default_flow_style=False), end="")


def table(rows: Sequence[Sequence[str]]) -> None:
    """Columns as kubectl has them; the first row is the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def duration(seconds: int | None) -> str:
    """As kubectl prints ages: the largest two units at most."""
    if seconds is None:
        return "-"
    for size, unit, smaller, smaller_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size}{unit}" + (f"{rest}{smaller_unit}" if rest else "")
    return f"{seconds}s"


def tell(text: str) -> None:
    """Progress and notes: for the person, not for the pipe. Nobody need listen."""
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


def failure(message: str, hint: str = "") -> None:
    print(f"{paint('error:', 'red', sys.stderr)} {message}", file=sys.stderr)
    if hint:
        print(hint, file=sys.stderr)


def paint(text: str, colour: str, stream: Any = None) -> str:
    stream = stream or sys.stdout
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"
