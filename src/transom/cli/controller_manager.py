"""`transom controller-manager`: the controllers alone, against any API server."""

from __future__ import annotations

import argparse
from pathlib import Path

from transom.cli import console

HELP = """\
Run the controllers in the foreground against the API server of a kubeconfig, until interrupted.

Several of them may run; the one that holds the lease kube-system/kube-controller-manager works, the others stand by.
`transom up` has its controllers built in and needs none of this."""
EXAMPLES = """\
  transom controller-manager --kubeconfig ./kubeconfig
  transom controller-manager --controllers='*,-serviceaccount-token'
  transom controller-manager --controllers=namespace --no-leader-elect"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.target_options(parser)
    parser.add_argument(
        "--controllers", default="*", metavar="LIST",
        help="names with commas: * is all that are on by default, foo turns one on, -foo off (default: *)",
    )
    parser.add_argument(
        "--leader-elect", action=argparse.BooleanOptionalAction, default=True, help="work only while holding the lease"
    )
    parser.add_argument("--root-ca-file", type=Path, metavar="FILE", help="certificate that pods know the API server by")
    parser.add_argument(
        "--service-account-private-key-file", type=Path, metavar="FILE", help="key that signs service account tokens"
    )


def run(args: argparse.Namespace) -> int:
    from transom.cluster import alone
    from transom.kit import logs

    logs.setup()
    alone.controller_manager(alone.Manager(
        console.target(args), args.context, [name.strip() for name in args.controllers.split(",") if name.strip()],
        args.leader_elect, args.root_ca_file, args.service_account_private_key_file,
    ))
    return 0
