"""`transom node`: the machines of a cluster: see, add, switch off and on, take away."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from transom.cli import console

HELP = """\
The machines of a running cluster.

stop is a pulled plug: the node says nothing more, and what ran on it has ended. start switches it on again, reboot does
both. delete takes the machine and its Node away. cordon and uncordon are kubectl's: no new pods, or pods again.
set gives Windows nodes a fault, or takes it away: mac-spoofing=on|off, whether the virtual machine's adapter lets out what pods
send; proxy=URL, through which the node has to go for images (proxy= for none). csi-proxy=on|off installs csi-proxy, which
storage drivers need there, or takes it away.

exec runs a command on a simulated machine itself, outside of its containers, and ends with its exit code (1 for the large
ones of Windows). Several words are a program and its arguments; one word is a line for the machine's shell, PowerShell or
sh. shell opens that shell. Windows nodes have their services, processes, networks and scripts there."""
EXAMPLES = """\
  transom node list
  transom node add windows-3 --os windows --build 20348 --memory 16Gi
  transom node add worker --count 10
  transom node stop linux-1
  transom node start linux-1
  transom node reboot windows-1
  transom node cordon windows-1
  transom node set windows-1 mac-spoofing=off
  transom node set windows-1 csi-proxy=on
  transom node set windows-1 windows-2 proxy=http://proxy.example.com:80/
  transom node delete windows-3
  transom node shell windows-1
  transom node exec windows-1 -- ipconfig /all
  transom node exec windows-1 -- Restart-Service kubelet
  transom node exec windows-1 'Get-HnsNetwork | ? Name -ieq "cbr0"'"""

_VERBS = ("list", "add", "delete", "stop", "start", "reboot", "cordon", "uncordon", "set", "exec", "shell")
_READY_SECONDS = 30.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=_VERBS, metavar="VERB", help=", ".join(_VERBS))
    parser.add_argument("node", nargs="*", metavar="NODE", help="names of nodes; for exec one, and the command")
    console.name_option(parser)
    new = parser.add_argument_group("for add")
    new.add_argument("--os", choices=("linux", "windows"), default="linux", help="default: %(default)s")
    new.add_argument("--build", type=int, metavar="N", help="of Windows, for example 17763 (default) or 20348")
    new.add_argument("--count", type=int, metavar="N", help="so many of them: NODE-1, NODE-2, ...")
    new.add_argument("--cpus", type=int, metavar="N")
    new.add_argument("--memory", metavar="SIZE", help="for example 16Gi")
    new.add_argument("--adapter", metavar="NAME", help='what a Windows node\'s network adapter is called (default: Ethernet)')
    new.add_argument("--container-runtime", choices=("docker", "containerd"))
    new.add_argument("--label", action="append", default=[], metavar="K=V", help="may be given several times")
    new.add_argument("--taint", action="append", default=[], metavar="K=V:EFFECT", help="may be given several times")
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.cluster.errors import ClusterError

    config = lifecycle.existing(args.name)
    settings = _settings(args) if args.verb == "set" else {}
    if args.verb != "list" and not args.node:
        raise ClusterError(f"which node is to be {_past(args.verb)}?", f"for example: transom node {args.verb} linux-1")
    call = lifecycle.control(config)
    if args.verb in ("exec", "shell"):
        return _login(config, args)
    if args.verb == "list":
        nodes = call("GET", "/transom/nodes")["items"]
        if args.output != "text":
            console.show(nodes, args.output)
        else:
            _table(nodes)
        return 0
    if args.verb == "add":
        call("POST", "/transom/nodes", [_row(args, name) for name in args.node])
    for name in args.node if args.verb != "add" else ():
        match args.verb:
            case "delete":
                call("DELETE", f"/transom/nodes/{name}")
            case "cordon" | "uncordon":
                patch = {"spec": {"unschedulable": args.verb == "cordon" or None}}
                call("PATCH", f"/api/v1/nodes/{name}", patch, "application/merge-patch+json")
            case "set":
                call("POST", f"/transom/nodes/{name}/set", settings)
            case verb:
                call("POST", f"/transom/nodes/{name}/{verb}")
        print(f"node/{name} {_past(args.verb)}")
    if args.verb in ("add", "start", "reboot"):
        names = _wait(call, args)
        if args.verb == "add":
            for name in names:
                print(f"node/{name} added")
    return 0


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Takes OPTION=VALUE out of the names of nodes."""
    from transom.cluster.errors import ClusterError

    given = dict(text.split("=", 1) for text in args.node if "=" in text)
    args.node = [text for text in args.node if "=" not in text]
    if not given:
        raise ClusterError("what is to be set?", "for example: transom node set windows-1 mac-spoofing=off")
    found: dict[str, Any] = {}
    for option, value in given.items():
        match option, value:
            case "mac-spoofing", "on" | "off":
                found["macSpoofing"] = value == "on"
            case "mac-spoofing", _:
                raise ClusterError(f"mac-spoofing is on or off, not {value!r}")
            case "csi-proxy", "on" | "off":
                found["csiProxy"] = value == "on"
            case "csi-proxy", _:
                raise ClusterError(f"csi-proxy is on or off, not {value!r}")
            case "proxy", _:
                found["proxy"] = value
            case _:
                raise ClusterError(f"a node has no option {option!r}", "what can be set: csi-proxy, mac-spoofing, proxy")
    return found


def _login(config: Any, args: argparse.Namespace) -> int:
    from transom.cli import remote
    from transom.cluster.errors import ClusterError

    node, *command = args.node
    if args.verb == "exec" and not command:
        raise ClusterError("which command is to be run?", f"for example: transom node exec {node} -- hostname")
    if args.verb == "shell" and command:
        raise ClusterError("a shell takes no command", f"transom node exec {node} -- {' '.join(command)}")
    terminal = args.verb == "shell" and sys.stdin.isatty()
    return remote.run(config, node, command, stdin=args.verb == "shell" or not sys.stdin.isatty(), tty=terminal)


def _row(args: argparse.Namespace, name: str) -> dict[str, Any]:
    from transom.cluster.errors import ClusterError

    row: dict[str, Any] = {"name": name, "os": args.os, "taints": args.taint}
    labels = dict(label.partition("=")[::2] for label in args.label)
    if any("=" not in label for label in args.label):
        raise ClusterError("a label is written KEY=VALUE", "for example --label zone=a")
    row["labels"] = labels
    for option, field in (("build", "build"), ("count", "count"), ("cpus", "cpus"), ("memory", "memory"),
                          ("adapter", "adapter"), ("container_runtime", "runtime")):
        if getattr(args, option) is not None:
            row[field] = getattr(args, option)
    return row


def _wait(call: Any, args: argparse.Namespace) -> list[str]:
    """Until the nodes are Ready; tells when that takes longer than a second."""
    from transom.cluster.errors import ClusterError

    def meant(name: str) -> bool:
        return any(name == n or (args.count and name.startswith(n + "-")) for n in args.node)

    started, told = time.monotonic(), False
    while True:
        nodes = [n for n in call("GET", "/transom/nodes")["items"] if meant(n["name"])]
        if nodes and all(n["ready"] for n in nodes):
            return [n["name"] for n in nodes]
        waited = time.monotonic() - started
        if waited > _READY_SECONDS:
            late = ", ".join(n["name"] for n in nodes if not n["ready"])
            raise ClusterError(f"not ready after {_READY_SECONDS:.0f} s: {late}", "see kubectl describe node, transom logs")
        if waited > 1 and not told:
            told = True
            console.tell("waiting for the nodes to get ready ...")
        time.sleep(0.02)


def _past(verb: str) -> str:
    return {"add": "added", "delete": "deleted", "stop": "stopped", "start": "started", "reboot": "rebooted",
            "cordon": "cordoned", "uncordon": "uncordoned", "set": "changed", "exec": "used",
            "shell": "used"}[verb]  # fmt: skip


def _table(nodes: list[dict[str, Any]]) -> None:
    rows = [("NAME", "STATE", "OS", "BUILD", "ADDRESS", "CPUS", "MEMORY", "RUNTIME", "KUBELET", "PODS")]
    for node in nodes:
        state = "ready" if node["ready"] else "stopped" if node["state"] == "stopped" else "not ready"
        build = f"10.0.{node['build']}" if node["build"] else "-"
        rows.append((node["name"], state, node["os"], build, node["address"], str(node["cpus"]), node["memory"],
                     node["runtime"], node["kubelet"], str(node["pods"])))
    console.table(rows)


