"""`transom proxy`: kube-proxy alone, against any API server."""

from __future__ import annotations

import argparse
import sys

from transom.cli import console
from transom.cli.command import Command, file_path

HELP = """\
Run kube-proxy in the foreground against the API server of a kubeconfig, until interrupted.

On a Linux node it needs root and programs nftables in the network namespace that it runs in: the tables transom-proxy of
the families ip and ip6, and no others. The rules stay when it exits; --cleanup removes them. --output nft prints them
instead, needs no root and changes nothing.

For a Windows node it only prints what kube-proxy would do there: --output hns prints the load balancers and remote
endpoints that kube-proxy would create in the node's host networking service, computed on an
emulated node with the build and addresses of the Node objects. `transom up` includes kube-proxy
for Linux and Windows nodes.

Flags and the configuration file are those of kube-proxy; with a file, all flags except --hostname-override are ignored."""
EXAMPLES = """\
  transom proxy --kubeconfig ./kubeconfig --cluster-cidr=10.244.0.0/16
  transom proxy --kubeconfig ./kubeconfig --hostname-override=node1 --output nft
  transom proxy --kubeconfig ./kubeconfig --hostname-override=win1 --output hns
  transom proxy --hostname-override=win1 --feature-gates=WinDSR=true --enable-dsr=true --output hns
  transom proxy --cleanup"""

_FLAGS = {
    "hostname-override": ("NAME", "name of the Node (default: the host name)"),
    "proxy-mode": ("MODE", "iptables on Linux; kernelspace or userspace on Windows"),
    "cluster-cidr": ("CIDR", "range of pods: traffic to services from elsewhere is masqueraded"),
    "feature-gates": (
        "LIST",
        "Name=true,Name=false: WinDSR, WinOverlay, WindowsEndpointSliceProxying, IPv6DualStack",
    ),
    "bind-address": ("IP", "default: 0.0.0.0"),
    "healthz-bind-address": ("IP:PORT", "default: 0.0.0.0:10256"),
    "metrics-bind-address": ("IP:PORT", "default: 127.0.0.1:10249"),
    "iptables-sync-period": ("DURATION", "longest time between two syncs (default: 30s)"),
    "iptables-min-sync-period": ("DURATION", "shortest time between two syncs (default: 1s)"),
    "iptables-masquerade-bit": ("BIT", "bit of the mark of packets to masquerade (default: 14)"),
    "masquerade-all": ("BOOL", "masquerade all traffic to services"),
    "nodeport-addresses": ("CIDRS", "addresses that accept NodePort traffic (default: all)"),
}
_WINDOWS_FLAGS = {
    "network-name": (
        "NAME",
        "HNS network (default: $KUBE_NETWORK, cbr0, with a source VIP vxlan0)",
    ),
    "source-vip": ("IP", "source VIP of overlay networks; implies that the network is one"),
    "root-hnsendpoint-name": ("NAME", "HNS endpoint of the node itself (default: cbr0)"),
    "forward-healthcheck-vip": ("BOOL", "answer health checks of load balancers on the node"),
    "enable-dsr": ("BOOL", "direct server return; needs --feature-gates=WinDSR=true"),
}


def add_proxy_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_target_options(parser)
    parser.add_argument(
        "--config",
        type=file_path,
        metavar="FILE",
        help="a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1)",
    )
    parser.add_argument(
        "--output",
        choices=("nft", "hns"),
        default="",
        help=("print the nft rules of a Linux node or the HNS objects of a Windows node, and exit"),
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the output that fits the node, and exit"
    )
    parser.add_argument("--cleanup", action="store_true", help="remove the rules and exit")
    for title, table in (("kube-proxy", _FLAGS), ("Windows nodes", _WINDOWS_FLAGS)):
        group = parser.add_argument_group(title)
        for flag, (metavar, about) in table.items():
            group.add_argument(f"--{flag}", metavar=metavar, help=about)
    parser.add_argument(
        "--release",
        default="1.20",
        metavar="RELEASE",
        help="release of kube-proxy on a Windows node (default: %(default)s)",
    )


def run_proxy_command(args: argparse.Namespace) -> int:
    from transom.kit import logs
    from transom.kit.user_errors import UserError
    from transom.node.programs import kube_proxy_standalone
    from transom.windows import releases

    logs.set_up_logging()
    tables = (
        "the tables ip transom-proxy and ip6 transom-proxy in nftables of this network namespace"
    )
    if args.cleanup:
        console.print_progress(f"removing {tables}")
        kube_proxy_standalone.cleanup_proxy_rules()
        return 0
    flags = {
        flag: value
        for flag in (*_FLAGS, *_WINDOWS_FLAGS)
        if (value := getattr(args, flag.replace("-", "_"))) is not None
    }
    if args.output == "hns" and not args.config:
        flags.setdefault("proxy-mode", "kernelspace")
    try:
        release = releases.parse_release_version(args.release)
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    options = kube_proxy_standalone.KubeProxyOptions(
        console.target_kubeconfig(args), args.context, flags, args.config, release
    )
    if args.output or args.dry_run:
        sys.stdout.write(kube_proxy_standalone.print_proxy_rules(options))
    else:
        console.print_progress(
            f"note: on a Linux node this programs {tables}; they stay when it exits; remove them "
            "with: "
            "transom proxy --cleanup"
        )
        kube_proxy_standalone.run_kube_proxy(options)
    return 0


COMMAND = Command(HELP, EXAMPLES, add_proxy_arguments, run_proxy_command)
