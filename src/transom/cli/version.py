"""`transom version`."""

from __future__ import annotations

import argparse
import platform

from transom import __version__
from transom.cli import console

HELP = "Print the version of transom and of the Kubernetes it is by default."
EXAMPLES = """\
  transom version
  transom version --output json"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster.config import DEFAULT_RELEASE, RELEASES

    report = {
        "transom": __version__,
        "kubernetes": RELEASES[DEFAULT_RELEASE],
        "releases": list(RELEASES),
        "python": platform.python_version(),
    }
    if args.output != "text":
        console.show(report, args.output)
    else:
        print(f"transom {report['transom']}, Kubernetes {report['kubernetes']}, Python {report['python']}")
    return 0
