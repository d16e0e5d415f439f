"""`transom snapshot`: save, verify, list and restore snapshots of a cluster."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cli import console
from transom.cli.command import Command
from transom.cli.help import HelpFormatter
from transom.node.settings import name_option

if TYPE_CHECKING:
    from transom.cluster.config import ClusterConfig

HELP = """\
Save the objects of a running cluster at one revision to a file, and restore them to the same or a
new cluster.

exit codes:
  0   done
  1   failed; the message has the reason
  2   wrong arguments
  3   the snapshot is damaged or incomplete, or holds objects that do not decode
  4   the disk is full or cannot be written"""
EXAMPLES = """\
  transom snapshot save                          to the snapshot folder, which `transom delete` does not remove
  transom snapshot save backup.snapshot --name blue
  transom snapshot save --with-keys              include certificates and encryption keys: keep the file secret
  transom snapshot list
  transom snapshot verify backup.snapshot --output json
  transom snapshot restore backup.snapshot --name blue-copy && transom up --name blue-copy
  transom snapshot restore backup.snapshot --replace      restore to the original cluster; restarts it if it is running"""


def add_snapshot_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, about: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(
            name,
            help=about,
            description=about,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        console.add_output_option(made)
        return made

    save = verb(
        "save", "write a snapshot of a cluster; run it again to continue one that was interrupted"
    )
    save.add_argument(
        "file",
        nargs="?",
        type=console.absolute_path,
        metavar="FILE",
        help="default: in the snapshot folder",
    )
    console.add_name_option(save)
    save.add_argument(
        "--with-keys",
        action="store_true",
        help="also save the certificate authority, all private keys and the encryption keys",
    )
    restore = verb("restore", "restore a cluster from a snapshot")
    restore.add_argument("file", type=console.absolute_path, metavar="FILE")
    restore.add_argument(
        "--name", default="", metavar="CLUSTER", help="default: the original cluster"
    )
    restore.add_argument(
        "--replace", action="store_true", help="replace the data of an existing cluster"
    )
    restore.add_argument(
        "--trust-settings",
        action="store_true",
        help="accept settings that reach this machine: files, programs, real containers, "
        "addresses other than loopback",
    )
    restore.add_argument(
        "--bump-revision",
        type=_count,
        default=None,
        metavar="N",
        help="raise resourceVersions by N, so that clients relist (default: 1000000000)",
    )
    _key_option(restore)
    check = verb(
        "verify", "check digests, checksums and the decoding of every object of a snapshot"
    )
    check.add_argument("file", type=console.absolute_path, metavar="FILE")
    _key_option(check)
    verb("list", "show the snapshots in the snapshot folder")
    forget = verb(
        "forget-corrupt", "empty the quarantine of corrupt records, once their objects are restored"
    )
    console.add_name_option(forget)


def _key_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--encryption-key-file",
        type=console.absolute_path,
        metavar="FILE",
        help="keys of an encrypted snapshot (default: those in it, or of its cluster)",
    )


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1 << 60:
        raise argparse.ArgumentTypeError("a positive number")
    return value


def run_snapshot_command(args: argparse.Namespace) -> int:
    return {
        "save": _save,
        "restore": _restore,
        "verify": _verify,
        "list": _list,
        "forget-corrupt": _forget,
    }[args.verb](args)


def _save(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.cluster.data import snapshots

    config = lifecycle.existing_cluster(args.name)
    target: Path = args.file or snapshots.default_snapshot_file(config.name)
    found = snapshots.save_snapshot(
        config, target, with_keys=args.with_keys, report_progress=console.print_progress
    )
    if args.with_keys:
        console.print_progress(
            "warning: the file holds the cluster's private keys; any user who can read it "
            "controls the cluster"
        )
    elif config.encrypt:
        console.print_progress(
            "note: Secrets in it are encrypted; restoring needs the keys in "
            f"{config.encryption_key_file}"
        )
    if args.output != "text":
        console.print_value(found, args.output)
    else:
        print(
            f"Saved {found['records']} objects of cluster {config.name} at revision "
            f"{found['revision']} to {found['file']}"
        )
    return 0


def _forget(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.cluster.endpoints.store_control import ROOT

    call = lifecycle.control_client(lifecycle.existing_cluster(args.name))
    found = call("GET", ROOT)["quarantined"]
    call("DELETE", f"{ROOT}/quarantine")
    if args.output != "text":
        console.print_value({"removed": len(found)}, args.output)
    else:
        print(f"Removed {len(found)} corrupt records from the quarantine of cluster {args.name}.")
    return 0


def _verify(args: argparse.Namespace) -> int:
    from transom.cluster.data import snapshot_check

    found = snapshot_check.verify_snapshot(
        args.file, args.encryption_key_file, console.print_progress
    )
    if args.output != "text":
        console.print_value(found, args.output)
        return 0
    print(
        f"{args.file} is intact: cluster {found['cluster']}, Kubernetes {found['release']}, "
        f"revision {found['revision']}, "
        f"{found['created']}"
    )
    console.print_table(
        [("RESOURCE", "OBJECTS"), *((name, str(count)) for name, count in found["counts"].items())]
    )
    if found["encryptedNotDecoded"]:
        print(
            f"{found['encryptedNotDecoded']} are encrypted and were not decoded; pass the keys "
            "with --encryption-key-file"
        )
    return 0


def _list(args: argparse.Namespace) -> int:
    from transom.cluster.data import snapshots

    found = snapshots.list_snapshots()
    if args.output != "text":
        console.print_value(found, args.output)
        return 0
    if not found:
        print(
            f"No snapshots in {snapshots.snapshots_folder()}; save one with: transom snapshot save"
        )
        return 0
    rows: list[tuple[str, ...]] = [
        ("CREATED", "CLUSTER", "RELEASE", "REVISION", "OBJECTS", "SIZE", "KEYS", "FILE")
    ]
    rows += [_row(one) for one in found]
    console.print_table(rows)
    return 0


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    size = f"{one['bytes'] / (1 << 20):.1f} MiB"
    if "problem" in one:
        return ("damaged", "-", "-", "-", "-", size, "-", one["file"])
    return (
        one["created"],
        one["cluster"],
        one["release"],
        str(one["revision"]),
        str(one["records"]),
        size,
        "yes" if one["withKeys"] else "no",
        one["file"],
    )


def _restore(args: argparse.Namespace) -> int:
    from transom.cluster import config as configs
    from transom.cluster import daemon, lifecycle
    from transom.cluster.data import snapshot_check, snapshot_restore
    from transom.store.snapshot_file import SnapshotDamaged, read_summary

    try:
        name = args.name or str(read_summary(args.file)[0].get("cluster", ""))
    except SnapshotDamaged as damage:
        raise snapshot_check.damaged_snapshot(args.file, damage) from damage
    existing = configs.load_config(configs.check_cluster_name(name))
    was_running = existing is not None and args.replace and daemon.running_pid(existing) is not None
    if was_running:
        # before anything is stopped
        snapshot_check.verify_snapshot(args.file, args.encryption_key_file, console.print_progress)
        lifecycle.stop_cluster(name, console.print_progress)
    try:
        found = snapshot_restore.restore_snapshot(
            args.file,
            name,
            key_file=args.encryption_key_file,
            replace_existing=args.replace,
            bump=args.bump_revision or snapshot_restore.REVISION_BUMP,
            report_progress=console.print_progress,
            trust_settings=args.trust_settings,
        )
    finally:
        if was_running and existing is not None:
            _start_again(existing)
    if args.output != "text":
        console.print_value(found, args.output)
        return 0
    print(
        f"Restored {found['records']} objects as cluster {name}, at revision {found['revision']}."
    )
    if found["kept"]:
        print(f"The previous data is kept as {found['kept']}")
    if found["tokensReissued"]:
        print(
            f"{found['tokensReissued']} service account tokens are issued again, because the "
            "snapshot has no keys."
        )
    if not was_running:
        print(f"start it with: transom up{name_option(name)}")
    return 0


def _start_again(config: ClusterConfig) -> None:
    from transom.cluster import lifecycle
    from transom.cluster.options import UpOptions

    target = Path(config.kubeconfig) if config.kubeconfig else None
    lifecycle.start_cluster(UpOptions(name=config.name, kubeconfig=target), console.print_progress)


COMMAND = Command(HELP, EXAMPLES, add_snapshot_arguments, run_snapshot_command)
