"""What the verbs share: common options, output in three formats, colours on a terminal only."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cluster.config import DEFAULT_NAME, RELEASES

if TYPE_CHECKING:
    from transom.cluster.lifecycle import Wanted

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def name_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default=DEFAULT_NAME, metavar="CLUSTER", help="the cluster (default: %(default)s)")


def _list(text: str) -> tuple[str, ...]:
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
    parser.add_argument(
        "--kubeconfig",
        type=absolute,
        metavar="FILE",
        help="kubeconfig to put the context into",
    )
    parser.add_argument(
        "--feature-gates", type=_list, metavar="A=true,B=false", help="features to turn on or off, by Kubernetes' names"
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


def wanted(args: argparse.Namespace) -> Wanted:
    """What the options say."""
    from transom.cluster.lifecycle import Wanted
    from transom.cluster.protection import Protection

    protection = Protection(args.audit_policy, args.audit_log, args.no_audit, args.encrypt, args.encryption_key_file)
    return Wanted(args.name, args.port, args.release, args.nodes, args.kubeconfig, protection, args.feature_gates)


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


def tell(text: str) -> None:
    """Progress and notes: for the person, not for the pipe."""
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
