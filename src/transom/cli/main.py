"""`transom VERB [OBJECT] [options]`: finds the verb's module and runs it.

Each verb is one module with HELP, EXAMPLES, `arguments(parser)` and `run(args) -> exit code`, imported only when asked
for: the command line must not cost more time than the cluster needs to start.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from transom import __version__

# verb -> what it does, in the order of the help
VERBS = {
    "up": "start a cluster in the background and point kubectl at it",
    "down": "stop a cluster, keeping its objects",
    "delete": "stop a cluster and remove all it has",
    "status": "show whether a cluster runs, where, and what is in it",
    "node": "list, add, stop, start, reboot, cordon, log in to or delete nodes",
    "demo": "run a web server on Linux and one on Windows that call each other",
    "ps": "show the containers on all nodes",
    "trace": "follow a packet through the cluster's network, and say why it does not arrive",
    "doctor": "say what is wrong with a cluster, and what to do about it",
    "report": "collect what a report of a bug needs",
    "image": "list, import, load, save, pull or remove images for real containers",
    "hns": "look into the host networking service of a Windows node, or make it fail",
    "logs": "show a cluster's log",
    "kubeconfig": "print a kubeconfig for a cluster",
    "apiserver": "run the control plane in the foreground",
    "controller-manager": "run the controllers alone, against any API server",
    "scheduler": "run the scheduler alone, against any API server",
    "dns": "answer the names of a cluster's services on a port of this machine",
    "proxy": "run kube-proxy alone, against any API server",
    "explain-schedule": "say why a pod goes to a node, or to none",
    "lint": "say what manifests will do on Windows nodes",
    "explain": "tell what is known of a limit of Windows",
    "matrix": "show what works on Windows nodes, by release and build",
    "webhook": "warn of pods for Windows in any cluster, as an admission webhook",
    "bench": "measure an API server",
    "version": "print the version",
}

_OVERVIEW = """\
A complete Kubernetes cluster, Windows nodes included, in one Python package.

verbs:
{verbs}

examples:
  transom up                        start the cluster "transom"; kubectl uses it from now on
  kubectl get nodes --output wide
  transom up --name blue            start a second one beside it
  transom status --all
  transom down

Say `transom VERB --help` for more on a verb.
"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        verb = arguments[1] if len(arguments) > 1 and arguments[0] == "help" else ""
        if verb not in VERBS:
            print(overview(), end="")
            return 0 if arguments else 2
        arguments = [verb, "--help"]
    if arguments[0] == "--version":
        arguments = ["version"]
    verb = arguments[0]
    if verb not in VERBS:
        return _unknown(verb)
    try:
        return _run(verb, arguments[1:])
    except ModuleNotFoundError as missing:
        if os.name != "nt":
            raise
        return _not_on_windows(verb, missing)


def overview() -> str:
    lines = "\n".join(f"  {verb:<20}{about}" for verb, about in VERBS.items())
    return f"transom {__version__}: " + _OVERVIEW.format(verbs=lines)


def _unknown(verb: str) -> int:
    from difflib import get_close_matches

    near = get_close_matches(verb, VERBS, 1)
    hint = f"did you mean `transom {near[0]}`?" if near else "`transom --help` lists the verbs"
    print(f"error: there is no verb {verb!r}\n{hint}", file=sys.stderr)
    return 2


def _not_on_windows(verb: str, missing: ModuleNotFoundError) -> int:
    hint = "lint, explain and matrix work on Windows; clusters want Linux, for instance under WSL"
    print(f"error: transom {verb} needs {missing.name}, which Windows has not\n{hint}", file=sys.stderr)
    return 1


def _parse(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Options may stand between words, as kubectl has it; what comes after `--` are words, whatever they look like."""
    words = parser._get_positional_actions()
    if any(action.nargs == argparse.PARSER for action in words):
        return parser.parse_args(arguments)  # a verb that has verbs, each with a parser of its own
    if "--" not in arguments:
        return parser.parse_intermixed_args(arguments)
    if not words or words[-1].nargs != argparse.ZERO_OR_MORE:
        return parser.parse_args(arguments)
    cut = arguments.index("--")
    args = parser.parse_intermixed_args(arguments[:cut])
    setattr(args, words[-1].dest, [*(getattr(args, words[-1].dest) or ()), *arguments[cut + 1 :]])
    return args


def _run(verb: str, arguments: list[str]) -> int:
    from transom.cluster.errors import ClusterError

    module = import_module(f"transom.cli.{verb.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        prog=f"transom {verb}",
        description=module.HELP,
        epilog="examples:\n" + module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.arguments(parser)
    args = _parse(parser, arguments)
    try:
        code: int = module.run(args)
        sys.stdout.flush()
    except ClusterError as error:
        from transom.cli import console

        console.failure(error.message, error.hint)
        return 1
    except BrokenPipeError:  # `transom logs | head`: the reader has seen enough
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
