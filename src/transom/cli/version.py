"""`transom version`."""

from __future__ import annotations

import argparse
import platform

from transom import __version__
from transom.cli import console
from transom.cli.command import Command

HELP = "Print the version of transom and of the Kubernetes release that it serves by default."
EXAMPLES = """\
  transom version
  transom version --output json"""


def add_version_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_output_option(parser)


def run_version_command(args: argparse.Namespace) -> int:
    from transom.node.settings import DEFAULT_RELEASE, RELEASES

    report = {
        "transom": __version__,
        "kubernetes": RELEASES[DEFAULT_RELEASE],
        "releases": list(RELEASES),
        "python": platform.python_version(),
    }
    if args.output != "text":
        console.print_value(report, args.output)
    else:
        print(
            f"transom {report['transom']}, Kubernetes {report['kubernetes']}, Python "
            f"{report['python']}"
        )
    return 0


COMMAND = Command(HELP, EXAMPLES, add_version_arguments, run_version_command)
