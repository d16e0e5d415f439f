"""`transom migrate`: move the objects of a cluster to an etcd, to several servers, or to a file."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command
from transom.kit.user_errors import EXIT_USAGE, UserError

HELP = """\
Move the objects of a stopped cluster to an etcd, to several API servers with an etcd of their own, or
back to the file in its state folder, and compare every object at the end.

Objects keep their uids and all other fields. In etcd they get new, higher resourceVersions, because
etcd assigns them; clients list again. From etcd to a file they keep them. The history of changes is
not moved. The old data is kept."""
EXAMPLES = """\
  transom down && transom migrate --to etcd://127.0.0.1:2379 && transom up
  transom migrate --to 'etcd://10.0.0.1,10.0.0.2,10.0.0.3/registry?ca=/ca.crt&cert=/c.crt&key=/c.key'
  transom migrate --servers 3             three API servers and three etcd members
  transom migrate --to sqlite --name blue"""


def add_migrate_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_name_option(parser)
    console.add_output_option(parser)
    parser.add_argument(
        "--to",
        metavar="STORE",
        help="etcd://HOST:PORT[,HOST:PORT...][/PREFIX], or sqlite (default: with --servers, an etcd "
        "that the cluster starts itself)",
    )
    parser.add_argument(
        "--servers",
        type=console.server_count,
        metavar="N",
        help="the number of API servers (default: as before; with --to sqlite, 1)",
    )


def run_migrate_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.cluster.data.migrate import OWN_ETCD, migrate_cluster
    from transom.node.settings import name_option

    if args.to is None and args.servers is None:
        raise UserError("--to or --servers is required", "", EXIT_USAGE)
    config = lifecycle.existing_cluster(args.name)
    target = OWN_ETCD if args.to is None else args.to
    report = migrate_cluster(config, target, console.print_progress, args.servers)
    if args.output != "text":
        console.print_value(report, args.output)
        return 0
    count = sum(report["objects"].values())
    print(f"Cluster {config.name} keeps its {count} objects in {report['store']}, all verified")
    print(f"the old data is still in {report['kept']}")
    print(f"start it with: transom up{name_option(config.name)}")
    return 0


COMMAND = Command(HELP, EXAMPLES, add_migrate_arguments, run_migrate_command)
