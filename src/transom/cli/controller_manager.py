"""`transom controller-manager`: the controllers alone, against any API server."""

from __future__ import annotations

import argparse
from pathlib import Path

from transom.cli import console
from transom.cli.switches import Switch

HELP = """\
Run the controllers in the foreground against the API server of a kubeconfig, until interrupted.

Several of them may run; the one that holds the lease kube-system/kube-controller-manager works, the others stand by.
`transom up` has its controllers built in and needs none of this."""
EXAMPLES = """\
  transom controller-manager --kubeconfig ./kubeconfig
  transom controller-manager --controllers='*,-serviceaccount-token'
  transom controller-manager --controllers=namespace --leader-elect=false
  transom controller-manager --allocate-node-cidrs --cluster-cidr=10.244.0.0/16 --service-cluster-ip-range=10.96.0.0/16
  transom controller-manager --cluster-signing-cert-file=ca.crt --cluster-signing-key-file=ca.key"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.target_options(parser)
    parser.add_argument(
        "--controllers", default="*", metavar="LIST",
        help="names with commas: * is all that are on by default, foo turns one on, -foo off (default: *)",
    )
    parser.add_argument(
        "--leader-elect", action=Switch, default=True, help="work only while holding the lease (default: true)"
    )
    parser.add_argument(
        "--root-ca-file", type=Path, metavar="FILE",
        help="certificates that pods know the API server by (default: those of the kubeconfig)",
    )
    parser.add_argument(
        "--service-account-private-key-file", type=Path, metavar="FILE", help="key that signs service account tokens"
    )
    signing = parser.add_argument_group("certificates", "Without both, approved requests are left for others to sign.")
    signing.add_argument("--cluster-signing-cert-file", type=Path, metavar="FILE", help="authority that signs requests")
    signing.add_argument("--cluster-signing-key-file", type=Path, metavar="FILE", help="and its key")
    ranges = parser.add_argument_group("addresses")
    ranges.add_argument(
        "--allocate-node-cidrs", action=Switch, default=False, help="give each node a range for its pods (default: false)"
    )
    ranges.add_argument(
        "--cluster-cidr", default="", metavar="CIDRS", help="what nodes get their share of: a range, or one of each family"
    )
    ranges.add_argument(
        "--service-cluster-ip-range", default="", metavar="CIDRS", help="what nodes must not get, should it lie in the former"
    )
    ranges.add_argument(
        "--node-cidr-mask-size", type=int, default=0, metavar="BITS", help="size of a share (default: 24, with IPv6 64)"
    )
    for family, usual in (("ipv4", 24), ("ipv6", 64)):
        ranges.add_argument(
            f"--node-cidr-mask-size-{family}", type=int, default=0, metavar="BITS",
            help=f"the same, where nodes have ranges of both families (default: {usual})",
        )
    ranges.add_argument(
        "--load-balancer-cidr", default="", metavar="CIDR",
        help="addresses for services of type LoadBalancer (default: none; somebody else looks after them)",
    )


def run(args: argparse.Namespace) -> int:
    from transom.cluster import alone
    from transom.cluster.manager_options import Manager
    from transom.kit import logs

    logs.setup()
    alone.controller_manager(Manager(
        console.target(args), args.context, [name.strip() for name in args.controllers.split(",") if name.strip()],
        args.leader_elect, args.root_ca_file, args.service_account_private_key_file, args.cluster_signing_cert_file,
        args.cluster_signing_key_file, args.allocate_node_cidrs, args.cluster_cidr, args.service_cluster_ip_range,
        args.node_cidr_mask_size, args.node_cidr_mask_size_ipv4, args.node_cidr_mask_size_ipv6, args.load_balancer_cidr,
    ))
    return 0
