"""`transom controller-manager`: the controllers alone, against any API server."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command, file_path
from transom.cli.switches import SwitchAction

HELP = """\
Run the controllers in the foreground against the API server of a kubeconfig, until interrupted.

Several instances can run; the one that holds the lease kube-system/kube-controller-manager is
active, the others stand by. `transom up` includes the controllers."""
EXAMPLES = """\
  transom controller-manager --kubeconfig ./kubeconfig
  transom controller-manager --controllers='*,-serviceaccount-token'
  transom controller-manager --controllers=namespace --leader-elect=false
  transom controller-manager --allocate-node-cidrs --cluster-cidr=10.244.0.0/16 --service-cluster-ip-range=10.96.0.0/16
  transom controller-manager --cluster-signing-cert-file=ca.crt --cluster-signing-key-file=ca.key"""


def add_controller_manager_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_target_options(parser)
    parser.add_argument(
        "--controllers",
        default="*",
        metavar="LIST",
        help=(
            "comma-separated names: * is all controllers that are on by default, foo turns one on, "
            "-foo turns it off (default: *)"
        ),
    )
    parser.add_argument(
        "--leader-elect",
        action=SwitchAction,
        default=True,
        help="use leader election (default: true)",
    )
    parser.add_argument(
        "--metrics-bind-address",
        default="",
        metavar="IP:PORT",
        help="serve /metrics and /healthz over HTTP, without authentication (default: off)",
    )
    parser.add_argument(
        "--root-ca-file",
        type=file_path,
        metavar="FILE",
        help="CA certificates that pods use to verify the API server (default: from the kubeconfig)",
    )
    parser.add_argument(
        "--service-account-private-key-file",
        type=file_path,
        metavar="FILE",
        help="key that signs service account tokens",
    )
    signing = parser.add_argument_group(
        "certificates", "Without both, approved certificate signing requests are not signed."
    )
    signing.add_argument(
        "--cluster-signing-cert-file",
        type=file_path,
        metavar="FILE",
        help="CA certificate that signs requests",
    )
    signing.add_argument(
        "--cluster-signing-key-file", type=file_path, metavar="FILE", help="key of the CA"
    )
    ranges = parser.add_argument_group("addresses")
    ranges.add_argument(
        "--allocate-node-cidrs",
        action=SwitchAction,
        default=False,
        help="allocate a pod CIDR to each node (default: false)",
    )
    ranges.add_argument(
        "--cluster-cidr",
        default="",
        metavar="CIDRS",
        help="pod CIDR of the cluster: one, or one per IP family",
    )
    ranges.add_argument(
        "--service-cluster-ip-range",
        default="",
        metavar="CIDRS",
        help="service CIDR, excluded from the pod CIDR",
    )
    ranges.add_argument(
        "--node-cidr-mask-size",
        type=int,
        default=0,
        metavar="BITS",
        help="mask size of node CIDRs (default: 24, IPv6 64)",
    )
    for family, usual in (("ipv4", 24), ("ipv6", 64)):
        ranges.add_argument(
            f"--node-cidr-mask-size-{family}",
            type=int,
            default=0,
            metavar="BITS",
            help=f"mask size of the node CIDRs of this family in dual-stack clusters (default: {usual})",
        )
    ranges.add_argument(
        "--load-balancer-cidr",
        default="",
        metavar="CIDR",
        help=(
            "addresses for services of type LoadBalancer (default: none; another component "
            "provides them)"
        ),
    )


def run_controller_manager_command(args: argparse.Namespace) -> int:
    from transom.cluster.components import run_controller_manager
    from transom.controllers.options import ControllerManagerOptions
    from transom.kit import logs

    logs.set_up_logging()
    run_controller_manager(
        ControllerManagerOptions(
            console.target_kubeconfig(args),
            args.context,
            [name.strip() for name in args.controllers.split(",") if name.strip()],
            args.leader_elect,
            args.root_ca_file,
            args.service_account_private_key_file,
            args.cluster_signing_cert_file,
            args.cluster_signing_key_file,
            args.allocate_node_cidrs,
            args.cluster_cidr,
            args.service_cluster_ip_range,
            args.node_cidr_mask_size,
            args.node_cidr_mask_size_ipv4,
            args.node_cidr_mask_size_ipv6,
            args.load_balancer_cidr,
            args.metrics_bind_address,
        )
    )
    return 0


COMMAND = Command(HELP, EXAMPLES, add_controller_manager_arguments, run_controller_manager_command)
