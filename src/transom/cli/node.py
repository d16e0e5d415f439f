"""`transom node`: list, add, start, stop and remove the nodes of a cluster."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from transom.cli import console
from transom.cli.command import Command
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.node.settings import name_option

if TYPE_CHECKING:
    from transom.cluster.config import ClusterConfig
    from transom.cluster.lifecycle import ControlCall

HELP = """\
Manage the nodes of a running cluster.

stop simulates power loss: the node stops reporting and its containers end. start powers it on
again. shutdown is an orderly stop: the services of a Windows node end first, and pods, if graceful
node shutdown is configured for the kubelet. reboot is shutdown and start.
delete removes the machine and its Node object; the control-plane node cannot be deleted. cordon
and uncordon work as in kubectl.
set changes a setting of a Windows node: mac-spoofing=on|off, whether the adapter of the virtual
machine sends packets of pods; proxy=URL, the proxy for image pulls (proxy= for none);
csi-proxy=on|off, whether csi-proxy is installed, which CSI drivers need. flex-drivers=on|off
installs the FlexVolume drivers microsoft.com/smb.cmd and
microsoft.com/iscsi.cmd in the plugin directory of a simulated Windows node, or removes them.

exec runs a command on a simulated node, outside its containers, and returns its exit code (1 for
exit codes above 255). Several words are a program and its arguments; one word is a command line
for the shell of the node, PowerShell or sh. shell opens that shell."""
EXAMPLES = """\
  transom node list
  transom node add windows-3 --os windows --build 20348 --memory 16Gi
  transom node add worker --count 10
  transom node stop linux-1
  transom node shutdown linux-1
  transom node start linux-1
  transom node reboot windows-1
  transom node cordon windows-1
  transom node set windows-1 mac-spoofing=off
  transom node set windows-1 csi-proxy=on
  transom node set windows-1 flex-drivers=on
  transom node set windows-1 windows-2 proxy=http://proxy.example.com:80/
  transom node delete windows-3
  transom node shell windows-1
  transom node exec windows-1 -- ipconfig /all
  transom node exec windows-1 -- Restart-Service kubelet
  transom node exec windows-1 'Get-HnsNetwork | ? Name -ieq "cbr0"'"""

_VERBS = (
    "list",
    "add",
    "delete",
    "stop",
    "shutdown",
    "start",
    "reboot",
    "cordon",
    "uncordon",
    "set",
    "exec",
    "shell",
)
_READY_SECONDS = 30.0
_RESPONSE_SECONDS = 5.0
_SHUTDOWN_SECONDS = 3600.0  # pods may take as long as the kubelet's configuration allows


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=_VERBS, metavar="VERB", help=", ".join(_VERBS))
    parser.add_argument(
        "node", nargs="*", metavar="NODE", help="node names; for exec, one node and the command"
    )
    console.add_name_option(parser)
    new = parser.add_argument_group("for add")
    new.add_argument(
        "--os", choices=("linux", "windows"), default="linux", help="default: %(default)s"
    )
    new.add_argument(
        "--build",
        metavar="BUILD",
        help="Windows build: 20348, ltsc2022, 10.0.17763.1697 (default: the one that the release recommends)",
    )
    new.add_argument("--count", type=int, metavar="N", help="number of nodes: NODE-1, NODE-2, ...")
    new.add_argument("--cpus", type=int, metavar="N")
    new.add_argument("--memory", metavar="SIZE", help="for example 16Gi")
    new.add_argument(
        "--adapter",
        metavar="NAME",
        help="name of the network adapter of a Windows node (default: Ethernet)",
    )
    new.add_argument("--container-runtime", choices=("docker", "containerd"))
    new.add_argument("--role", choices=("worker", "control-plane"), help="default: worker")
    new.add_argument(
        "--system-reserved",
        metavar="K=V,...",
        help="resources that the kubelet reserves for the system: memory=2Gi,cpu=200m",
    )
    new.add_argument("--label", action="append", default=[], metavar="K=V", help="repeatable")
    new.add_argument(
        "--taint",
        action="append",
        default=[],
        metavar="K=V:EFFECT",
        help="repeatable",
    )
    console.add_output_option(parser)


def run_node_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    settings = _settings(args) if args.verb == "set" else {}
    if args.verb != "list" and not args.node:
        example = {"exec": "linux-1 -- hostname", "add": "worker-1"}.get(args.verb, "linux-1")
        hint = f"for example: transom node {args.verb}{name_option(args.name)} {example}"
        raise UserError("NODE is required", hint, EXIT_USAGE)
    config = lifecycle.existing_cluster(args.name)
    slow = args.verb in ("shutdown", "reboot")
    call = lifecycle.control_client(config, _SHUTDOWN_SECONDS if slow else _RESPONSE_SECONDS)
    if args.verb in ("exec", "shell"):
        return _login(config, args)
    if args.verb == "list":
        return _list(call, args)
    if args.verb == "add":
        for warning in call("POST", "/transom/nodes", [_row(args, name) for name in args.node])[
            "warnings"
        ]:
            console.print_progress(f"note: {warning}")
    names = args.node if args.verb != "add" else []
    for name, path in [(name, console.node_path(name, args.name)) for name in names]:
        match args.verb:
            case "delete":
                call("DELETE", f"/transom/nodes/{path}")
            case "cordon" | "uncordon":
                patch = {"spec": {"unschedulable": args.verb == "cordon" or None}}
                call("PATCH", f"/api/v1/nodes/{path}", patch, "application/merge-patch+json")
            case "set":
                call("POST", f"/transom/nodes/{path}/set", settings)
            case verb:
                call("POST", f"/transom/nodes/{path}/{verb}")
        if args.output == "text":
            print(f"node/{name} {_past(args.verb)}")
    if args.verb in ("add", "start", "reboot"):
        names = _wait(call, args)
        if args.verb == "add" and args.output == "text":
            for name in names:
                print(f"node/{name} added")
    if args.output != "text":
        done = [{"name": name, "result": _past(args.verb)} for name in names]
        console.print_value(done, args.output)
    return 0


def _list(call: Any, args: argparse.Namespace) -> int:
    nodes = call("GET", "/transom/nodes")["items"]
    if args.output != "text":
        console.print_value(nodes, args.output)
    else:
        _table(nodes)
        console.print_unusable_nodes(nodes, name_option(args.name))
    return 0


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Separates OPTION=VALUE arguments from node names."""
    given = dict(text.split("=", 1) for text in args.node if "=" in text)
    args.node = [text for text in args.node if "=" not in text]
    if not given:
        hint = f"for example: transom node set windows-1 mac-spoofing=off{name_option(args.name)}"
        raise UserError("OPTION=VALUE is required", hint, EXIT_USAGE)
    found: dict[str, Any] = {}
    for option, value in given.items():
        match option, value:
            case "mac-spoofing", "on" | "off":
                found["macSpoofing"] = value == "on"
            case "mac-spoofing", _:
                raise UserError(f"mac-spoofing must be on or off, not {value!r}", code=EXIT_USAGE)
            case "csi-proxy", "on" | "off":
                found["csiProxy"] = value == "on"
            case "flex-drivers", "on" | "off":
                found["flexDrivers"] = value == "on"
            case (("csi-proxy" | "flex-drivers"), _):
                raise UserError(f"{option} must be on or off, not {value!r}", code=EXIT_USAGE)
            case "proxy", _:
                found["proxy"] = value
            case _:
                known = "options: csi-proxy, flex-drivers, mac-spoofing, proxy"
                raise UserError(f"a node has no option {option!r}", known, EXIT_USAGE)
    return found


def _login(config: ClusterConfig, args: argparse.Namespace) -> int:
    from transom.cli import remote

    node, *command = args.node
    console.node_path(node, args.name)  # it is a node's name
    if args.verb == "exec" and not command:
        hint = f"for example: transom node exec{name_option(args.name)} {node} -- hostname"
        raise UserError("COMMAND is required", hint, EXIT_USAGE)
    if args.verb == "shell" and command:
        hint = f"use transom node exec{name_option(args.name)} {node} -- {shlex.join(command)}"
        raise UserError("shell takes no command", hint, EXIT_USAGE)
    terminal = args.verb == "shell" and sys.stdin.isatty()
    return remote.run_remote_command(
        config, node, command, stdin=args.verb == "shell" or not sys.stdin.isatty(), tty=terminal
    )


def _row(args: argparse.Namespace, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "os": args.os, "taints": args.taint}
    labels = dict(label.partition("=")[::2] for label in args.label)
    if any("=" not in label for label in args.label):
        raise UserError("a label is written KEY=VALUE", "for example --label zone=a", EXIT_USAGE)
    row["labels"] = labels
    for option, field in (
        ("build", "build"),
        ("count", "count"),
        ("cpus", "cpus"),
        ("memory", "memory"),
        ("adapter", "adapter"),
        ("container_runtime", "runtime"),
    ):
        if getattr(args, option) is not None:
            row[field] = getattr(args, option)
    if args.role:
        row["role"] = args.role
        if not args.taint:
            del row["taints"]  # a control-plane node has its default one
    if args.system_reserved is not None:
        row["systemReserved"] = dict(
            one.partition("=")[::2] for one in args.system_reserved.split(",") if one
        )
    return row


def _wait(call: ControlCall, args: argparse.Namespace) -> list[str]:
    """Waits until the nodes are Ready; reports progress if that takes longer than a second."""

    def meant(name: str) -> bool:
        return any(name == n or (args.count and name.startswith(n + "-")) for n in args.node)

    started, reported = time.monotonic(), False
    while True:
        nodes = [n for n in call("GET", "/transom/nodes")["items"] if meant(n["name"])]
        if nodes and all(n["ready"] for n in nodes):
            return [n["name"] for n in nodes]
        waited = time.monotonic() - started
        if waited > _READY_SECONDS:
            late = ", ".join(n["name"] for n in nodes if not n["ready"])
            hint = f"see transom doctor{name_option(args.name)}"
            raise UserError(f"not ready after {_READY_SECONDS:.0f} s: {late}", hint)
        if waited > 1 and not reported:
            reported = True
            console.print_progress("waiting for the nodes to become ready ...")
        time.sleep(0.02)


def _past(verb: str) -> str:
    return {
        "add": "added",
        "delete": "deleted",
        "stop": "stopped",
        "shutdown": "shut down",
        "start": "started",
        "reboot": "rebooted",
        "cordon": "cordoned",
        "uncordon": "uncordoned",
        "set": "changed",
        "exec": "used",
        "shell": "used",
    }[verb]


_OFF: Final = ("stopped", "not started")


def _table(nodes: list[dict[str, Any]]) -> None:
    rows = [
        ("NAME", "STATE", "OS", "BUILD", "ADDRESS", "CPUS", "MEMORY", "RUNTIME", "KUBELET", "PODS")
    ]
    for node in nodes:
        state = node["state"] if node["state"] in _OFF else "not ready"
        state = "ready" if node["ready"] else state
        build = f"10.0.{node['build']}" if node["build"] else "-"
        rows.append(
            (
                node["name"],
                state,
                node["os"],
                build,
                node["address"],
                str(node["cpus"]),
                node["memory"],
                node["runtime"] or "-",
                node["kubelet"],
                str(node["pods"]),
            )
        )
    console.print_table(rows)


COMMAND = Command(HELP, EXAMPLES, add_node_arguments, run_node_command)
