"""`transom envtest`: programs for controller-runtime's envtest."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command, file_path

HELP = """\
Prepare a folder for test suites that use controller-runtime's envtest.

`setup` writes the programs kube-apiserver, etcd and kubectl, and prints the folder. Suites find them
through the environment variable KUBEBUILDER_ASSETS and need no change. As with envtest's own
programs, there are no controllers and no nodes."""
EXAMPLES = """\
  transom envtest setup             write the programs and print their directory
  export KUBEBUILDER_ASSETS=$(transom envtest setup)
  export KUBEBUILDER_ASSETS=$(transom envtest setup --release 1.32 --dir ./bin)
  go test ./..."""


def add_envtest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["setup"], help="what to do")
    parser.add_argument(
        "--release", metavar="R", help="the Kubernetes release to serve (default: the newest)"
    )
    parser.add_argument(
        "--dir",
        metavar="DIR",
        type=file_path,
        help="the folder for the programs (default: one per release)",
    )
    console.add_output_option(parser)


def run_envtest_command(args: argparse.Namespace) -> int:
    from transom.cluster.envtest import setup
    from transom.node.settings import RELEASES

    release = args.release or list(RELEASES)[-1]
    folder = (args.dir or setup.default_assets_folder(release)).absolute()
    setup.write_envtest_assets(folder, release)
    if args.output == "text":
        print(folder)
    else:
        console.print_value(
            {"folder": str(folder), "release": release, "version": RELEASES[release]}, args.output
        )
    return 0


COMMAND = Command(HELP, EXAMPLES, add_envtest_arguments, run_envtest_command)
