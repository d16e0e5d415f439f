"""What the verbs share: common options, output in three formats, colours on terminals."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from transom.cli.command import file_path
from transom.kit.user_errors import UserError
from transom.node.network_settings import DATAPLANES
from transom.node.settings import ENGINES, RELEASES, default_name, name_option
from transom.windows.records import ALL_NETWORKS

if TYPE_CHECKING:
    from transom.cluster.options import UpOptions

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def add_name_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--name",
        default=default_name(),
        metavar="CLUSTER",
        help="the cluster (default: $TRANSOM_NAME, else transom)",
    )


def add_cluster_options(parser: argparse.ArgumentParser, all_help: str) -> None:
    """Adds the options that select one cluster by name, or all clusters."""
    which = parser.add_mutually_exclusive_group()
    add_name_option(which)
    which.add_argument("--all", action="store_true", help=all_help)


def add_dry_run_option(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument("--dry-run", action="store_true", help=f"{about}, and change nothing")


def for_each_cluster(args: argparse.Namespace, act: Callable[[str], None]) -> int:
    """Runs an action on all selected clusters (`add_cluster_options`), even if it fails for one;
    returns the exit code.
    """
    from transom.cluster.config import known_clusters
    from transom.kit.user_errors import UserError, of_system

    if not args.all:
        act(args.name)
        return 0
    code = 0
    names = known_clusters()
    if not names:
        print("There are no clusters.")
    for name in names:
        try:
            act(name)
        except (UserError, OSError) as error:
            known = of_system(error) if isinstance(error, OSError) else error
            print_failure(f"cluster {name}: {known.message}", known.hint)
            code = known.code
    return code


def comma_separated(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select an API server: one of our clusters by name, or any by
    kubeconfig.
    """
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--name", metavar="CLUSTER", help="a cluster of this machine")
    where.add_argument(
        "--kubeconfig",
        type=file_path,
        metavar="FILE",
        help="default: the kubeconfig that kubectl uses",
    )
    parser.add_argument(
        "--context", default="", metavar="NAME", help="default: the current context"
    )


def target_kubeconfig(args: argparse.Namespace) -> Path | None:
    """The kubeconfig selected with `add_target_options`; None for kubectl's default."""
    name = args.name
    if name is None and args.kubeconfig is None and not args.context:
        name = os.environ.get("TRANSOM_NAME")
    if not name:
        return args.kubeconfig
    from transom.cluster import lifecycle

    config = lifecycle.existing_cluster(name)
    if not config.own_kubeconfig.exists():  # a start that failed
        lifecycle.control_client(config)  # raises an error: the cluster is not running
    return config.own_kubeconfig


def add_output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json", "yaml"),
        default="text",
        help="output format (default: %(default)s)",
    )


def server_count(text: str) -> int:
    return number_between(text, 1, 9, "a cluster has 1 to 9 API servers")


def add_servers_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--servers",
        type=server_count,
        metavar="N",
        help=(
            "API servers, each a process, with an etcd of three members behind one address "
            "(default: 1); see docs/high-availability.md"
        ),
    )


def add_start_options(parser: argparse.ArgumentParser) -> None:
    """The options of `up` and `apiserver`. An omitted option keeps the value of the cluster's last
    start.
    """
    add_name_option(parser)
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="N",
        help="port of the API server; 0 (default) selects a free port",
    )
    parser.add_argument(
        "--release",
        choices=tuple(RELEASES),
        metavar="RELEASE",
        help="Kubernetes release to serve (default: 1.20)",
    )
    parser.add_argument(
        "--nodes",
        action=argparse.BooleanOptionalAction,
        help="start nodes (default), or only the control plane",
    )
    _node_options(parser)
    parser.add_argument(
        "--kubeconfig",
        type=absolute_path,
        metavar="FILE",
        help="kubeconfig file to add the context to",
    )
    parser.add_argument(
        "--feature-gates",
        type=comma_separated,
        metavar="A=true,B=false",
        help="Kubernetes feature gates to turn on or off",
    )
    parser.add_argument(
        "--runtime-config",
        type=comma_separated,
        metavar="GROUP/VERSION=true",
        help="API group versions or resources to turn on or off (api/beta=true: all betas)",
    )
    audit = parser.add_mutually_exclusive_group()
    audit.add_argument(
        "--audit-policy",
        type=absolute_path,
        metavar="FILE",
        help="record requests according to this audit policy",
    )
    audit.add_argument("--no-audit", action="store_true", help="stop recording requests")
    parser.add_argument(
        "--audit-log",
        type=absolute_path,
        metavar="FILE",
        help="audit log file (default: in the state folder)",
    )
    parser.add_argument(
        "--encrypt",
        action=argparse.BooleanOptionalAction,
        help="encrypt Secrets on disk, or stop encrypting them",
    )
    parser.add_argument(
        "--encryption-key-file",
        type=absolute_path,
        metavar="FILE",
        help="encryption keys (default: a generated key in the state folder)",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help=(
            "keep the objects in etcd: etcd://HOST:PORT[,HOST:PORT...][/PREFIX]; "
            "sqlite (default) is a file in the state folder"
        ),
    )
    _access_options(parser)
    several = parser.add_argument_group("several API servers (docs/high-availability.md)")
    several.add_argument(
        "--bind-address",
        "--bind",
        metavar="IP",
        help="address to listen on (default: 127.0.0.1); 0.0.0.0 for all",
    )
    several.add_argument(
        "--advertise-address",
        metavar="IP",
        help=(
            "address of this server in the endpoints of the service kubernetes (default: the bind "
            "address, with --store and --no-nodes)"
        ),
    )
    several.add_argument(
        "--cert-dir",
        type=absolute_path,
        metavar="DIR",
        help=(
            "use the certificate authorities and service account keys of this folder, for "
            "example the folder pki of another server"
        ),
    )
    several.add_argument(
        "--apiserver-cert-extra-sans",
        type=lambda text: tuple(text.split(",")),
        metavar="NAME,...",
        help=(
            "more IP addresses and DNS names for the certificate of the server, for example those "
            "of a load balancer, as in kubeadm"
        ),
    )
    parser.add_argument(
        "--loop-budget",
        type=_budget,
        metavar="DURATION",
        help=(
            "log each event loop callback that uses more CPU time than this, with its stack: "
            "100ms; 0 turns it off (default)"
        ),
    )
    parser.add_argument(
        "--virtual-time",
        action=argparse.BooleanOptionalAction,
        default=None,
        help=(
            "let `transom advance` move the cluster's time forward; the time starts at the real "
            "one at each start (default: --no-virtual-time)"
        ),
    )


def _node_options(parser: argparse.ArgumentParser) -> None:
    """The node options, for the first start. Passing any of them later replaces the cluster's
    nodes.
    """
    nodes = parser.add_argument_group("nodes")
    nodes.add_argument("--linux", type=_count, metavar="N", help="Linux workers (default: 1)")
    nodes.add_argument("--windows", type=_count, metavar="N", help="Windows workers (default: 2)")
    nodes.add_argument(
        "--build",
        type=_windows_build,
        metavar="BUILD",
        help=(
            "Windows build of the workers: 20348, ltsc2022, 10.0.17763.1697 (default: the one that "
            "the release recommends)"
        ),
    )
    nodes.add_argument(
        "--taint-windows",
        action="store_true",
        help="add the taint os=windows:NoSchedule to Windows nodes",
    )
    nodes.add_argument(
        "--runtime",
        choices=ENGINES,
        metavar="ENGINE",
        help=(
            "container runtime: sim (default); oci, real processes with runc and Wine (needs "
            "root); auto, the best one available"
        ),
    )
    nodes.add_argument(
        "--network",
        choices=ALL_NETWORKS,
        metavar="MODE",
        help=(
            f"network mode of Windows pods: {', '.join(ALL_NETWORKS)} (default: l2bridge); see "
            "docs/network-modes.md"
        ),
    )
    nodes.add_argument(
        "--dataplane",
        choices=DATAPLANES,
        metavar="PLANE",
        help=("data plane: model (default), or kernel, Linux network namespaces (needs root)"),
    )
    nodes.add_argument(
        "--dual-stack",
        action="store_true",
        default=None,
        help="IPv4 and IPv6 addresses for nodes, pods and services; see docs/dual-stack.md",
    )
    parser.add_argument(
        "--warn-windows",
        action=argparse.BooleanOptionalAction,
        help="warn about pods that use features Windows does not support (default: on)",
    )
    parser.add_argument(
        "--reject-windows",
        type=comma_separated,
        metavar="IDS",
        help="reject Windows pods by limitation: WIN-POD-003,WIN-STO-*; '' rejects none",
    )
    nodes.add_argument(
        "--config",
        type=absolute_path,
        metavar="FILE",
        help="a cluster file that describes each node",
    )


def _count(text: str) -> int:
    return number_between(text, 0, 5000, "a cluster has 0 to 5000 nodes of a kind")


def _windows_build(text: str) -> tuple[int, int]:
    from transom.windows import builds

    found = builds.parse_node_build(text)
    if found is None:
        known = ", ".join(str(number) for number in builds.BUILDS)
        raise argparse.ArgumentTypeError(f"unknown Windows build {text!r}: choose from {known}")
    return found


def add_up_options(args: argparse.Namespace) -> UpOptions:
    """The settings from the options."""
    from transom.cluster.cluster_file import WindowsOptions
    from transom.cluster.options import NodeOptions, ServerSetOptions, UpOptions
    from transom.cluster.protection import Protection
    from transom.node.network_settings import NetworkOptions

    protection = Protection(
        args.audit_policy, args.audit_log, args.no_audit, args.encrypt, args.encryption_key_file
    )
    return UpOptions(
        args.name,
        args.port,
        args.release,
        args.nodes,
        args.kubeconfig,
        protection,
        args.feature_gates,
        args.runtime_config,
        NodeOptions(args.linux, args.windows, args.build, args.taint_windows, args.config),
        WindowsOptions(args.warn_windows, args.reject_windows),
        NetworkOptions(args.network, args.dataplane, args.dual_stack),
        args.runtime,
        args.loop_budget,
        args.store,
        ServerSetOptions(
            args.servers,
            args.bind_address,
            args.advertise_address,
            args.cert_dir,
            args.apiserver_cert_extra_sans,
        ),
        virtual_time=args.virtual_time,
        access=_given_access(args),
    )


def _access_options(parser: argparse.ArgumentParser) -> None:
    """The flags of kube-apiserver for authentication and authorization."""
    from transom.cluster.access_flags import ACCESS_FLAGS

    group = parser.add_argument_group("authentication and authorization (docs/authentication.md)")
    for name, flag in ACCESS_FLAGS.items():
        group.add_argument(
            f"--{name}",
            dest=_access_name(name),
            type=_optional_file if flag.is_file else str,
            action="append",
            metavar=flag.metavar,
            help=flag.help,
        )


def _access_name(flag: str) -> str:
    return "access_" + flag.replace("-", "_")


def _optional_file(text: str) -> str:
    """A file name; "" removes the flag."""
    return str(absolute_path(text)) if text else ""


def _given_access(args: argparse.Namespace) -> dict[str, str]:
    from transom.cluster.access_flags import ACCESS_FLAGS

    given = vars(args)
    return {
        name: ",".join(given[_access_name(name)])
        if name in _REPEATED
        else given[_access_name(name)][-1]
        for name in ACCESS_FLAGS
        if given.get(_access_name(name)) is not None
    }


_REPEATED = ("oidc-required-claim", "oidc-signing-algs", "authorization-mode")


def number_between(text: str, least: int, most: int, problem: str) -> int:
    """A number of an option; raises ArgumentTypeError with `problem` for anything else."""
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{problem}, not {text!r}")
    return int(text)


def port_number(text: str) -> int:
    return number_between(text, 0, 65535, "a port is a number from 0 to 65535")


def _budget(text: str) -> str:
    from transom.kit.durations import DurationError, parse_duration

    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds and seconds < 0.005:
        raise argparse.ArgumentTypeError("the budget must be at least 5ms, or 0 for none")
    return text if seconds else ""


def absolute_path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def node_path(name: str, cluster: str) -> str:
    """A node's name as part of a URL. Raises UserError for text that is no node's name."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", name):
        raise UserError(
            f"there is no node {name!r}", f"transom node list{name_option(cluster)} shows them"
        )
    return quote(name, safe="")


def print_value(value: Any, output: str) -> None:
    """Machine-readable output."""
    if output == "json":
        print(json.dumps(value, indent=2))
    else:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, default_flow_style=False), end="")


def print_unusable_nodes(nodes: Iterable[Mapping[str, Any]], option: str) -> None:
    """The nodes of `/transom/nodes` that cannot start, and why."""
    for node in nodes:
        if node.get("problem"):
            found = colour_text(f"{node['name']} cannot start: {node['problem']}", "red")
            print(f"{found}; see transom doctor{option} {node['name']}")


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Columns like kubectl's; the first row is the header. On a terminal, the widest columns are
    shortened until a line fits, and then the gaps between them.
    """
    full = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    available = _table_width()
    widths, gap = full, _GAPS[0]
    for gap in _GAPS if available else ():
        widths = list(full)
        room = available - len(gap) * (len(widths) - 1)
        _shorten_columns(widths, room)
        if sum(widths) <= room:
            break
    for row in rows:
        cells = zip(row, widths, strict=True)
        print(gap.join(_fit(cell, width).ljust(width) for cell, width in cells).rstrip())


_GAPS, _NARROWEST, _DOTS = ("   ", "  ", " "), 8, "..."


def _table_width() -> int:
    """The width of the terminal; 0 where lines may have any length: programs read whole cells."""
    return terminal_columns(80) if sys.stdout.isatty() else 0


def terminal_columns(otherwise: int) -> int:
    """COLUMNS, the width of the terminal, or `otherwise` if there is none."""
    with contextlib.suppress(OSError, ValueError):  # not a terminal
        otherwise = os.get_terminal_size(sys.stdout.fileno()).columns or otherwise
    # The standard library asks sys.__stdout__, which `main` has detached.
    return shutil.get_terminal_size((otherwise, 24)).columns


def _shorten_columns(widths: list[int], available: int) -> None:
    while sum(widths) > available and max(widths) > _NARROWEST:
        widest = widths.index(max(widths))
        others = sorted(widths, reverse=True)[1:2] or [_NARROWEST]
        floor = max(_NARROWEST, min(others[0], widths[widest] - 1))
        widths[widest] = max(floor, widths[widest] - (sum(widths) - available))


def _fit(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - len(_DOTS)] + _DOTS


def format_age(seconds: int | None) -> str:
    """An age like kubectl's: at most the two largest units."""
    if seconds is None:
        return "-"
    for size, unit, smaller, smaller_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size}{unit}" + (f"{rest}{smaller_unit}" if rest else "")
    return f"{seconds}s"


def print_progress(text: str) -> None:
    """Progress and notes for the user, on stderr; a closed pipe is ignored."""
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


def print_failure(message: str, hint: str = "") -> None:
    print(f"{colour_text('error:', 'red', sys.stderr)} {message}", file=sys.stderr)
    if hint:
        print(hint, file=sys.stderr)


def colour_text(text: str, colour: str, stream: Any = None) -> str:
    stream = stream or sys.stdout
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"
