"""`transom proxy`: kube-proxy alone, against any API server."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from transom.cli import console

HELP = """\
Run kube-proxy in the foreground against the API server of a kubeconfig, until interrupted.

On a Linux node it needs root and programs nftables in the network namespace that it runs in: the tables transom-proxy of
the families ip and ip6, and no others. The rules stay when it ends; --cleanup takes them away. --output nft prints them
instead, needs no root and changes nothing.

For a Windows node it can only say what kube-proxy would do there, because this is no Windows: --output hns prints the load
balancers and remote endpoints that the node's host networking service would be told to make, worked out on an emulated node
with the build, the addresses and the neighbours that the Node objects tell of. `transom up` has all of it built in, for
nodes of both kinds, and needs none of this.

Flags and the configuration file are kube-proxy's own; with a file all flags but --hostname-override count for nothing."""
EXAMPLES = """\
  transom proxy --kubeconfig ./kubeconfig --cluster-cidr=10.244.0.0/16
  transom proxy --kubeconfig ./kubeconfig --hostname-override=node1 --output nft
  transom proxy --kubeconfig ./kubeconfig --hostname-override=win1 --output hns
  transom proxy --hostname-override=win1 --feature-gates=WinDSR=true --enable-dsr=true --output hns
  transom proxy --cleanup"""

_FLAGS = {
    "hostname-override": ("NAME", "the Node that this is (default: the machine's name)"),
    "proxy-mode": ("MODE", "iptables on Linux; kernelspace or userspace on Windows"),
    "cluster-cidr": ("CIDR", "range of pods: traffic to services from elsewhere is masqueraded"),
    "feature-gates": ("LIST", "Name=true,Name=false: WinDSR, WinOverlay, WindowsEndpointSliceProxying, IPv6DualStack"),
    "bind-address": ("IP", "default: 0.0.0.0"),
    "healthz-bind-address": ("IP:PORT", "default: 0.0.0.0:10256"),
    "metrics-bind-address": ("IP:PORT", "default: 127.0.0.1:10249"),
    "iptables-sync-period": ("DURATION", "longest time between two syncs (default: 30s)"),
    "iptables-min-sync-period": ("DURATION", "shortest time between two syncs (default: 1s)"),
    "iptables-masquerade-bit": ("BIT", "of the mark of packets to masquerade (default: 14)"),
    "masquerade-all": ("BOOL", "masquerade all traffic to services"),
    "nodeport-addresses": ("CIDRS", "addresses that node ports are on (default: all)"),
}
_WINDOWS_FLAGS = {
    "network-name": ("NAME", "HNS network (default: $KUBE_NETWORK, cbr0, with a source VIP vxlan0)"),
    "source-vip": ("IP", "of overlay networks; says that the network is one"),
    "enable-dsr": ("BOOL", "direct server return; needs --feature-gates=WinDSR=true"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    console.target_options(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1)"
    )
    parser.add_argument(
        "--output", choices=("nft", "hns"), default="",
        help="print what the node would be told, and end: rules for nft, or objects of a Windows node",
    )
    parser.add_argument("--dry-run", action="store_true", help="print, whichever of the two the node needs")
    parser.add_argument("--cleanup", action="store_true", help="take the rules away and end")
    for title, table in (("kube-proxy", _FLAGS), ("Windows nodes", _WINDOWS_FLAGS)):
        group = parser.add_argument_group(title)
        for flag, (metavar, about) in table.items():
            group.add_argument(f"--{flag}", metavar=metavar, help=about)
    parser.add_argument(
        "--release", default="1.20", metavar="RELEASE", help="of kube-proxy on a Windows node (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    from transom.cluster import proxy_alone
    from transom.cluster.errors import ClusterError
    from transom.kit import logs
    from transom.windows import releases

    logs.setup()
    if args.cleanup:
        proxy_alone.cleanup()
        return 0
    flags = {
        flag: value for flag in (*_FLAGS, *_WINDOWS_FLAGS) if (value := getattr(args, flag.replace("-", "_"))) is not None
    }
    if args.output == "hns" and not args.config:
        flags.setdefault("proxy-mode", "kernelspace")
    try:
        release = releases.parse(args.release)
    except ValueError as problem:
        raise ClusterError(str(problem)) from problem
    wanted = proxy_alone.Alone(console.target(args), args.context, flags, args.config, release)
    if args.output or args.dry_run:
        sys.stdout.write(proxy_alone.print_once(wanted))
    else:
        proxy_alone.run(wanted)
    return 0
