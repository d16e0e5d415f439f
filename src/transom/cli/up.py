"""`transom up`: start a cluster in the background."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from transom.cli import console
from transom.cluster.config import DEFAULT_NAME

if TYPE_CHECKING:
    from transom.cluster.config import ClusterConfig

HELP = """\
Start a cluster in the background and return when it is ready.

By default it has a Linux control-plane node, a Linux worker and two Windows workers (Windows Server 2019). The cluster's
context is put into your kubeconfig (--kubeconfig, else the first file of $KUBECONFIG, else ~/.kube/config) and made
current. A cluster that was stopped with `transom down` comes back with all its objects and nodes, on the same port and with
the options of its last start."""
EXAMPLES = """\
  transom up
  transom up --linux 3 --windows 1 --build 20348
  transom up --taint-windows              Linux manifests need no node selector then
  transom up --config cluster.yaml        each node in detail, see docs/nodes.md
  transom up --dual-stack --build 19041   IPv4 and IPv6, on Windows nodes that can have both
  transom up --runtime auto               real containers where this machine can: runc, and Wine for Windows
  transom up --name blue --port 7443
  transom up --kubeconfig /tmp/kubeconfig --no-nodes
  transom up --reject-windows WIN-STO-*   refuse pods for Windows with volumes that Windows cannot mount
  transom up --encrypt --audit-policy ./policy.yaml
  transom up --output json"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.start_options(parser)
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    began = time.monotonic()
    config = lifecycle.up(console.wanted(args), console.tell)
    took = time.monotonic() - began
    if args.output != "text":
        console.show(lifecycle.status(config), args.output)
        return 0
    print(f"Cluster {console.paint(config.name, 'bold')} is {console.paint('ready', 'green')} after {took:.2f} s:"
          f" Kubernetes {config.git_version} at {config.url}")  # fmt: skip
    print(f'kubectl context "{config.name}" is current in {config.kubeconfig}')
    if not config.no_nodes:
        _nodes(config)
    return 0


def _reach(report: dict[str, Any]) -> None:
    from transom.cli.status import relays

    network = report["network"]
    print(f"network {network['mode']} on the {network['dataplane']} data plane; node ports answer on 127.0.0.1")
    relays(report)


def _nodes(config: ClusterConfig) -> None:
    """What there is and what to try, for somebody who sees it for the first time."""
    from transom.cluster import engines, lifecycle, nodes
    from transom.windows import releases

    found = lifecycle.control(config)("GET", "/transom/nodes")["items"]
    kinds = [
        (sum(n["os"] == name for n in found), text)
        for name, text in (("linux", "Linux"), ("windows", "Windows"))
    ]
    late = [n["name"] for n in found if not n["ready"] and n["state"] != "stopped"]
    told = " and ".join(f"{count} {text}" for count, text in kinds if count)
    print(f"{len(found)} nodes, {told}, {_engine(found)}:" if found else "no nodes; add some: transom node add NAME")
    for node in found[:8]:
        system = f"Windows 10.0.{node['build']}" if node["build"] else "Linux"
        print(f"  {node['name']:<16}{system:<20}{node['cpus']} CPUs, {node['memory']:<8}{node['runtime']}")
    if len(found) > 8:
        print(f"  ... and {len(found) - 8} more: transom node list")
    if late:
        print(console.paint(f"not ready yet: {', '.join(late[:8])}", "yellow") + "; see kubectl describe node")
    release = releases.parse(config.release)
    odd = sorted({n["build"] for n in found if n["build"] and not releases.supports(release, n["build"])})
    if odd:
        listed = ", ".join(f"10.0.{build}" for build in odd)
        print(console.paint(f"note: Kubernetes {config.release} does not support Windows {listed} as a node", "yellow")
              + "; see transom matrix")  # fmt: skip
    untainted = any(spec.windows and nodes.WINDOWS_TAINT not in spec.taints for spec in nodes.load(config) or ())
    _reach(lifecycle.status(config))
    print("\nTry:")
    print("  kubectl get nodes --output wide")
    print("  transom demo" + ("" if config.name == DEFAULT_NAME else f" --name {config.name}"))
    windows = next((n for n in found if n["build"]), None)
    if windows is not None:
        _windows(windows)
    print("  transom ps")
    if windows is not None and _is_real(windows) and engines.template_missing():
        print("\nWine's template is being made, once for this machine: the first Windows container waits for it, some 15 s.")
    if untainted:
        print("\nThe Windows nodes have no taint: as in Kubernetes, a Linux pod without a node selector may land on one and"
              "\nfail there. With `transom up --taint-windows` Linux manifests need no change.")


def _is_real(node: dict[str, Any]) -> bool:
    return not node["runtime"].endswith("-sim")


def _engine(found: list[dict[str, Any]]) -> str:
    simulated = sorted({n["os"].capitalize() for n in found if not _is_real(n)})
    if not simulated:
        return "with real containers"
    if not any(_is_real(n) for n in found):
        return "on the simulated runtime"
    return f"with real containers, but simulated ones on {simulated[0]}"


def _windows(node: dict[str, Any]) -> None:
    """A Windows container to begin with."""
    from transom.windows import builds

    build = builds.BUILDS[node["build"]]
    if _is_real(node):
        tag = build.release if builds.of_tag(build.release) == build else build.full_version
        image, command = f"nanoserver:{tag}", " --command -- ping -n 3600 127.0.0.1"
    else:
        image, command = "servercore/iis:windowsservercore-ltsc2019", ""
    print(f"  kubectl run web --image=mcr.microsoft.com/windows/{image} \\")
    print(f"""    --overrides '{{"spec":{{"nodeSelector":{{"kubernetes.io/os":"windows"}}}}}}'{command}""")
    print("  kubectl exec web -- cmd /c ver")
