"""`transom cloud`: the disks and shares of the emulated cloud."""

from __future__ import annotations

import argparse
from typing import Any

from transom.cli import console
from transom.cli.command import Command

HELP = """\
Manage the disks and file shares of the emulated cloud of a running cluster. They exist outside
the nodes and keep their files when pods move and when the cluster stops.

list shows them. create makes a disk in advance; other disks and shares are created on first use.
delete removes one with its files. detach detaches a disk from its node without Kubernetes.

set turns faults on and off. Disks have attach-error=TEXT and detach-error=TEXT (empty for none), missing=on|off and
latency=TIME (30, 1m30s), the time that attaching and detaching take; `set all latency=TIME` is for all disks. Shares have
offline=on|off. limit sets how many disks of a type can be attached to a node, which the node
reports as attachable-volumes-TYPE; `default` removes the limit."""
EXAMPLES = """\
  transom cloud list
  transom cloud create gce-pd data --size 10Gi --zone europe-west1-b
  transom cloud set data attach-error="quota exceeded"
  transom cloud set data attach-error=
  transom cloud set all latency=20
  transom cloud set //account.file.core.windows.net/share offline=on
  transom cloud limit windows-1 azure-disk 4
  transom cloud detach data
  transom cloud delete data"""

_VERBS = ("list", "create", "delete", "detach", "limit", "set")
_PAST = {"delete": "deleted", "detach": "detached", "limit": "changed", "set": "changed"}


def add_cloud_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=_VERBS, metavar="VERB", help=", ".join(_VERBS))
    parser.add_argument(
        "rest", nargs="*", metavar="ARGUMENT", help="depends on VERB, see the examples"
    )
    parser.add_argument("--size", metavar="SIZE", help="size of a new disk (default: 1Gi)")
    parser.add_argument(
        "--zone", metavar="ZONE", help="zone of a new disk (default: none, any node can attach it)"
    )
    console.add_name_option(parser)
    console.add_output_option(parser)


def run_cloud_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    call = lifecycle.control_client(lifecycle.existing_cluster(args.name))
    if args.verb == "list":
        _expect(args, 0, "transom cloud list")
        found = call("GET", "/transom/cloud")
        if args.output != "text":
            console.print_value(found, args.output)
        else:
            _table(found)
        return 0
    body: dict[str, Any]
    if args.verb == "create":
        _expect(args, 2, "transom cloud create gce-pd data --size 10Gi")
        body = {"type": args.rest[0], "name": args.rest[1], "size": args.size, "zone": args.zone}
    elif args.verb == "limit":
        _expect(args, 3, "transom cloud limit windows-1 azure-disk 4")
        body = {"node": args.rest[0], "type": args.rest[1], "count": args.rest[2]}
    elif args.verb == "set":
        body = {"name": args.rest[0] if args.rest else "", "values": _values(args.rest[1:])}
    else:
        _expect(args, 1, f"transom cloud {args.verb} data")
        body = {"name": args.rest[0]}
    answer = call("POST", f"/transom/cloud/{args.verb}", body)
    if args.output != "text":
        console.print_value(answer, args.output)
    elif args.verb == "create":
        print(f"disk {answer['id']} created")
    else:
        print(f"{answer['name']} {_PAST[args.verb]}")
    return 0


def _expect(args: argparse.Namespace, count: int, example: str) -> None:
    from transom.kit.user_errors import EXIT_USAGE, UserError

    if len(args.rest) != count:
        takes = {0: "no arguments", 1: "one argument"}.get(count, f"{count} arguments")
        raise UserError(f"cloud {args.verb} takes {takes}", f"for example: {example}", EXIT_USAGE)


def _values(texts: list[str]) -> dict[str, str]:
    from transom.kit.user_errors import EXIT_USAGE, UserError

    if any("=" not in text for text in texts):
        raise UserError(
            "options are written OPTION=VALUE",
            "for example: transom cloud set data latency=30",
            EXIT_USAGE,
        )
    return dict(text.split("=", 1) for text in texts)


def _table(found: dict[str, Any]) -> None:
    rows = [("NAME", "TYPE", "ZONE", "SIZE", "FILE SYSTEM", "ATTACHED TO", "FAULTS")]
    for disk in found["disks"]:
        rows.append(
            (
                disk["name"],
                disk["type"].removeprefix("kubernetes.io/"),
                disk["zone"] or "-",
                _size(disk["sizeBytes"]),
                disk["fileSystem"] or "-",
                ", ".join(disk["attachedTo"]) or "-",
                _faults(disk["faults"]),
            )
        )
    for share in found["shares"]:
        rows.append(
            (
                share["name"],
                "share",
                "-",
                _size(share["sizeBytes"]),
                "SMB",
                "-",
                _faults(share["faults"]),
            )
        )
    if len(rows) == 1:
        print("No disks or shares.")
    else:
        console.print_table(rows)


def _faults(faults: dict[str, Any]) -> str:
    return (
        ", ".join(f"{name}={'on' if value is True else value}" for name, value in faults.items())
        or "-"
    )


def _size(number: int) -> str:
    return f"{number / (1 << 30):g}Gi"


COMMAND = Command(HELP, EXAMPLES, add_cloud_arguments, run_cloud_command)
