"""The options that describe the Windows nodes of a cluster that is not asked itself."""

from __future__ import annotations

import argparse


def add_node_target_options(nodes: argparse._ArgumentGroup) -> None:
    nodes.add_argument(
        "--release", metavar="X.Y", help="Kubernetes release of the nodes (default: 1.20)"
    )
    nodes.add_argument(
        "--build",
        metavar="BUILD",
        help="Windows build of the nodes: 17763, 10.0.17763, ltsc2019, 1809",
    )
    nodes.add_argument(
        "--runtime", choices=("docker", "containerd"), help="their container runtime"
    )
    nodes.add_argument(
        "--network",
        choices=("l2bridge", "l2tunnel", "overlay", "transparent", "nat"),
        help="network mode",
    )
    nodes.add_argument(
        "--feature",
        action="append",
        default=[],
        metavar="NAME",
        help="feature of the nodes: dsr, csi-proxy, hyperv, a feature gate",
    )
