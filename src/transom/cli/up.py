"""`transom up`: start a cluster in the background."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transom.cli import console
from transom.cli.command import Command
from transom.node.settings import name_option

if TYPE_CHECKING:
    from transom.cluster.config import ClusterConfig
    from transom.node.spec import NodeSpec

HELP = """\
Start a cluster in the background and return when it is ready.

By default it has a Linux control-plane node, a Linux worker and two Windows workers (Windows Server 2019). The
context of the cluster is added to your kubeconfig (--kubeconfig, else the first file of
$KUBECONFIG, else ~/.kube/config) and becomes the current context. A cluster that was stopped with
`transom down` restarts with its objects and nodes, on the same port and with the options of its
last start."""
EXAMPLES = """\
  transom up
  transom up --linux 3 --windows 1 --build 20348
  transom up --taint-windows              Linux manifests then need no node selector
  transom up --config cluster.yaml        each node in detail, see docs/nodes.md
  transom up --dual-stack --build 19041   IPv4 and IPv6, on Windows nodes that support both
  transom up --runtime auto               real containers if available: runc, and Wine for Windows
  transom up --name blue --port 7443
  transom up --kubeconfig /tmp/kubeconfig --no-nodes
  transom up --reject-windows WIN-STO-*   reject Windows pods with volumes that Windows cannot mount
  transom up --console                    and its web console, see docs/console.md
  transom up --servers 3                  three API servers and three etcd members
  transom up --encrypt --audit-policy ./policy.yaml
  transom up --dry-run                    check the options and print what would be started
  transom up --output json"""


def add_up_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_start_options(parser)
    console.add_servers_option(parser)
    parser.add_argument(
        "--console",
        action="store_true",
        help="then serve the web console until Ctrl-C, like `transom console`; the cluster stays",
    )
    console.add_output_option(parser)
    console.add_dry_run_option(parser, "check the options, print what would be started")


def run_up_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    if args.dry_run:
        return _dry_run(args)
    began = time.monotonic()
    # A supervisor that times out sends SIGTERM: like Ctrl-C, it must not leave a partial start.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        config = lifecycle.start_cluster(console.add_up_options(args), console.print_progress)
    finally:
        signal.signal(signal.SIGTERM, before)
    took = time.monotonic() - began
    if args.output != "text":
        status = lifecycle.cluster_status(config)
        if args.console:
            return _console(config, lambda found: _print(status | {"console": found}, args.output))
        console.print_value(status, args.output)
        return 0
    print(
        f"Cluster {console.colour_text(config.name, 'bold')} is {console.colour_text('ready', 'green')} "
        f"after {took:.2f} s:"
        f" Kubernetes {config.git_version} at {config.url}"
    )
    print(f'kubectl context "{config.name}" is current in {config.kubeconfig}')
    if not config.no_nodes:
        _nodes(config)
    return _console(config) if args.console else 0


def _print(value: dict[str, Any], output: str) -> None:
    """One document, at once: the program that reads it does not wait for the console's end."""
    console.print_value(value, output)
    sys.stdout.flush()


def _console(config: ClusterConfig, report: Callable[[dict[str, str]], None] | None = None) -> int:
    from transom.cli.web_console import serve_console
    from transom.client.kubeconfig import load_kubeconfig
    from transom.web.server import ConsoleAddress

    if report is None:
        print()
    return serve_console(load_kubeconfig(config.own_kubeconfig), ConsoleAddress(), report)


def _dry_run(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    config, nodes = lifecycle.plan_cluster(console.add_up_options(args), console.print_progress)
    plan = {
        "name": config.name,
        "version": config.git_version,
        "kubeconfig": config.kubeconfig,
        "stateDir": str(config.state),
        "port": config.port,
        "runtime": config.engine,
        "nodes": [
            {"name": spec.name, "os": "windows" if spec.windows else "linux"} for spec in nodes
        ],
    }
    if args.output != "text":
        console.print_value(plan, args.output)
        return 0
    print(f"Would start cluster {config.name}: Kubernetes {config.git_version}, {config.state}")
    print(f'kubectl context "{config.name}" would be current in {config.kubeconfig}')
    for spec in nodes:
        print(f"  {spec.name:<16}{'Windows' if spec.windows else 'Linux'}")
    return 0


def _reach(report: dict[str, Any]) -> None:
    from transom.cli.status import relay_lines

    network = report["network"]
    print(
        f"network {network['mode']} on the {network['dataplane']} data plane; NodePorts are "
        "reachable on 127.0.0.1"
    )
    relay_lines(report)


def _nodes(config: ClusterConfig) -> None:
    """An overview of the cluster and first commands, for new users."""
    from transom.cluster import lifecycle
    from transom.cluster.config import load_nodes
    from transom.node.spec import WINDOWS_TAINT
    from transom.windows import releases

    option, kubectl = name_option(config.name), _kubectl(config)
    listed_nodes = lifecycle.control_client(config)("GET", "/transom/nodes")["items"]
    found = [node for node in listed_nodes if not node.get("problem")]
    kinds = [
        (sum(n["os"] == name for n in found), text)
        for name, text in (("linux", "Linux"), ("windows", "Windows"))
    ]
    late = [n["name"] for n in found if not n["ready"] and n["state"] != "stopped"]
    summary_of_kinds = " and ".join(f"{count} {text}" for count, text in kinds if count)
    if found:
        print(f"{len(found)} nodes, {summary_of_kinds}, {_engine(found)}:")
    elif not listed_nodes:
        print(f"no nodes; add one: transom node add worker-1{option}")
    for node in found[:8]:
        system = f"Windows 10.0.{node['build']}" if node["build"] else "Linux"
        print(
            f"  {node['name']:<16}{system:<20}{node['cpus']} CPUs, "
            f"{node['memory']:<8}{node['runtime']}"
        )
    if len(found) > 8:
        print(f"  ... and {len(found) - 8} more: transom node list{option}")
    console.print_unusable_nodes(listed_nodes, option)
    if late:
        print(
            console.colour_text(f"not ready yet: {', '.join(late[:8])}", "yellow")
            + f"; see {kubectl} describe node {late[0]}"
        )
    release = releases.parse_release_version(config.release)
    odd = sorted(
        {
            n["build"]
            for n in found
            if n["build"] and not releases.supports_build(release, n["build"])
        }
    )
    if odd:
        listed = ", ".join(f"10.0.{build}" for build in odd)
        print(
            console.colour_text(
                f"note: Kubernetes {config.release} does not support Windows {listed} as a node",
                "yellow",
            )
            + "; see transom matrix"
        )
    specs = {spec.name: spec for spec in load_nodes(config) or ()}
    _reach(lifecycle.cluster_status(config))
    print("\nTry:")
    print(f"  {kubectl} get nodes --output wide")
    print(f"  transom demo{option}")
    windows = next((n for n in found if n["build"] and n["name"] in specs), None)
    if windows is not None:
        mixed = len({n["build"] for n in found if n["build"]}) > 1
        _windows(windows, specs[windows["name"]], kubectl, mixed=mixed)
    print(f"  transom ps{option}")
    if windows is not None and _is_real(windows) and _wine_template_missing():
        print(
            "\nWine is being prepared, once for this machine: the first Windows container starts "
            "about 15 s later."
        )
    if any(spec.windows and WINDOWS_TAINT not in spec.taints for spec in specs.values()):
        print(
            "\nThe Windows nodes have no taint: as in Kubernetes, a Linux pod without a node "
            "selector can be scheduled to"
            "\none and fails there. With `transom up --taint-windows`, Linux manifests need no "
            "change."
        )


def _kubectl(config: ClusterConfig) -> str:
    """The kubectl command for this cluster; it needs --kubeconfig only if the file is not kubectl's
    default.
    """
    import shlex
    from pathlib import Path

    from transom.cluster.kubeconfig import default_kubeconfig_path

    named = config.kubeconfig and Path(config.kubeconfig) != default_kubeconfig_path()
    return f"kubectl --kubeconfig {shlex.quote(config.kubeconfig)}" if named else "kubectl"


def _is_real(node: dict[str, Any]) -> bool:
    return not node["runtime"].endswith("-sim")


def _engine(found: list[dict[str, Any]]) -> str:
    simulated = sorted({n["os"].capitalize() for n in found if not _is_real(n)})
    if not simulated:
        return "with real containers"
    if not any(_is_real(n) for n in found):
        return "on the simulated runtime"
    return f"with real containers, simulated containers on {simulated[0]}"


def _windows(node: dict[str, Any], spec: NodeSpec, kubectl: str, *, mixed: bool) -> None:
    """A first Windows container that matches the node's build and tolerates its taints."""
    import json

    from transom.windows import builds

    build = builds.BUILDS[node["build"]]
    if _is_real(node):
        tag = build.release if builds.build_of_tag(build.release) == build else build.full_version
        image, command = f"nanoserver:{tag}", " --command -- ping -n 3600 127.0.0.1"
    else:
        image, command = f"servercore/iis:windowsservercore-{build.tags[0]}", ""
    selector = {"kubernetes.io/os": "windows"} | (
        {"node.kubernetes.io/windows-build": build.version} if mixed else {}
    )
    pod: dict[str, Any] = {"nodeSelector": selector}
    if spec.taints:
        pod["tolerations"] = [dict(taint) for taint in spec.taints]
    overrides = json.dumps({"spec": pod}, separators=(",", ":"))
    print(f"  {kubectl} run web --image=mcr.microsoft.com/windows/{image} \\")
    print(f"    --overrides '{overrides}'{command}")
    print(f"  {kubectl} wait --for=condition=Ready pod/web --timeout=120s")
    print(f"  {kubectl} exec web -- cmd /c ver")


def _wine_template_missing() -> bool:
    from transom.node.real_runtimes import template_missing

    return template_missing()


COMMAND = Command(HELP, EXAMPLES, add_up_arguments, run_up_command)
