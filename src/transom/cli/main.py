"""`transom VERB [OBJECT] [options]`: finds the verb's module and runs it.

Each verb is one module with a `COMMAND`, imported only when needed, so that the command line does
not take longer than the cluster takes to start.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from transom import __version__
from transom.cli.aliases import resolve_alias
from transom.cli.command import Command
from transom.kit.escaping import escape_terminal
from transom.kit.interrupts import raise_interrupts
from transom.kit.user_errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_USAGE, UserError, of_system

# verb -> what it does, in the order of the help
VERBS = {
    "up": "start a cluster in the background and point kubectl at it",
    "down": "stop a cluster, keeping its objects",
    "delete": "stop a cluster and remove its data",
    "list": "list your clusters",
    "status": "show the state of a cluster",
    "node": "list, add, stop, start, reboot, cordon, log in to or delete nodes",
    "cloud": "list, create, detach, break or delete disks and shares of the emulated cloud",
    "demo": "run a web server on Linux and one on Windows that call each other",
    "ps": "show the containers on all nodes",
    "trace": "follow a packet through the cluster's network and explain why it is dropped",
    "doctor": "find problems in a cluster and suggest fixes",
    "console": "serve the web console of a cluster",
    "scenario": "list known faults of Windows nodes, or produce one",
    "rehearse": "move workloads to nodes of another Windows build, and report what does not run",
    "readiness": "run the Windows Operational Readiness test cases against a cluster",
    "snapshot": "save, verify, list or restore snapshots of a cluster",
    "migrate": "move a cluster to an etcd, to several API servers, or back to a file",
    "upgrade": "restart the processes of a cluster one by one, with the installed version",
    "report": "collect information for a bug report",
    "image": "list, import, load, save, pull or remove images for real containers",
    "hns": "inspect the host networking service (HNS) of a Windows node, or inject faults",
    "logs": "show a cluster's log",
    "advance": "advance the time of a cluster with virtual time",
    "kubeconfig": "print a kubeconfig for a cluster",
    "apiserver": "run the control plane in the foreground",
    "controller-manager": "run the controllers alone, against any API server",
    "scheduler": "run the scheduler alone, against any API server",
    "dns": "serve the DNS names of a cluster on a port of this machine",
    "proxy": "run kube-proxy alone, against any API server",
    "envtest": "write kube-apiserver and etcd for test suites that use controller-runtime's envtest",
    "explain-schedule": "explain why a pod is scheduled to a node, or to none",
    "lint": "check manifests for Windows nodes",
    "explain": "explain a Windows limitation",
    "matrix": "show what works on Windows nodes, by release and build",
    "webhook": "run an admission webhook that warns about Windows pods in any cluster",
    "bench": "measure an API server",
    "completion": "print a completion script for bash, zsh or fish",
    "version": "print the version",
}

# cli/console.py is the terminal output of all verbs
_MODULES = {"console": "web_console"}

_OVERVIEW = """\
A complete Kubernetes cluster, Windows nodes included, in one Python package.

verbs:
{verbs}

examples:
  transom up                        start the cluster "transom"; kubectl uses it from now on
  kubectl get nodes --output wide
  transom up --name blue            start a second cluster
  transom status --all
  transom down

The environment variable TRANSOM_NAME selects the cluster of commands without --name. Commands of kind, k3d
and minikube work, too: create cluster, get clusters, cluster list, start, stop.

Run `transom VERB --help` for more information about a verb.
"""


class _Terminal(io.TextIOWrapper):
    """Escapes control characters, so that container messages and object names cannot manipulate the
    terminal.
    """

    def write(self, text: str) -> int:
        return super().write(escape_terminal(text))


def main(argv: Sequence[str] | None = None) -> int:
    """The one place that turns errors into messages and exit codes: users never see a traceback."""
    _open_missing_streams()
    os.umask(os.umask(0o077) | 0o022)  # other users cannot change the files that we write
    if sys.stdout.isatty():
        encoding = sys.stdout.encoding
        raw = sys.stdout.detach()  # type: ignore[union-attr]
        sys.stdout = _Terminal(raw, encoding, "backslashreplace", line_buffering=True)
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        raise_interrupts()
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except SystemExit:  # argparse has already printed the help or the error
        _flush()
        raise
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except UserError as error:
        return _fail(error)
    except BrokenPipeError:  # `transom logs | head`: the reader has closed the pipe
        _discard_output()
        return 0
    except OSError as error:
        return _fail(of_system(error))
    except Exception as error:
        if _is_interrupted(error):
            return EXIT_INTERRUPTED
        return _fail(_unknown_error(arguments, error))


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether the error followed from Ctrl-C: in a `finally` of a library, which did not expect it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _open_missing_streams() -> None:
    """Replaces a stream that the caller has closed (`transom up >&-`) by one that discards its
    output.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(
                sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "r" if name == "stdin" else "w"))
            )


def _discard_output() -> None:
    """Discards buffered output that cannot be written; otherwise Python would try again at exit,
    and report an error.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # a stream without a file, in tests
    finally:
        os.close(null)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _discard_output()


def _fail(error: UserError) -> int:
    from transom.cli import console

    _flush()
    with contextlib.suppress(OSError):
        console.print_failure(error.message, error.hint)
    return error.code


def _unknown_error(arguments: Sequence[str], error: Exception) -> UserError:
    """An internal error. The traceback is written to a file, for a bug report."""
    import traceback

    from transom.kit.files import write_atomic
    from transom.node.settings import clusters_dir

    path = clusters_dir() / "last-error.log"
    text = f"transom {__version__}, Python {sys.version}\n{arguments}\n{traceback.format_exc()}"
    hint = f"please report it with the file {path}; transom report collects more information"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode(errors="backslashreplace"), 0o600)
    except OSError as problem:
        hint = f"please report it; cannot write the details to {path}: {problem.strerror}"
    about = " ".join(f"{type(error).__name__}: {error}".split())
    return UserError(f"this is a bug in transom: {about[:500]}", hint, EXIT_BUG)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        verb = arguments[1] if len(arguments) > 1 and arguments[0] == "help" else ""
        if verb and verb not in VERBS:
            raise _unknown(verb)
        if not verb:
            print(overview(), end="")
            return 0 if arguments else EXIT_USAGE
        arguments = [verb, "--help"]
    if arguments[0] == "--version":
        arguments = ["version"]
    if arguments[0] == "__complete":
        return _complete(arguments[1:])
    arguments = resolve_alias(arguments)
    verb = arguments[0]
    if verb not in VERBS:
        raise _unknown(verb)
    try:
        return _run(verb, arguments[1:])
    except ModuleNotFoundError as missing:
        if os.name != "nt":
            raise
        hint = "lint, explain and matrix work on Windows; clusters need Linux, for example WSL"
        raise UserError(
            f"transom {verb} needs {missing.name}, which Windows does not have", hint
        ) from missing


def _complete(words: list[str]) -> int:
    from transom.cli.completion import complete

    for candidate in complete(words, VERBS, make_parser):
        print(candidate)
    return 0


def print_kubectl_completion() -> int:
    """`kubectl_complete-transom`, which kubectl runs to complete `kubectl transom`: a candidate in
    each line, then Cobra's directive (4: no file names).
    """
    from transom.cli.completion import complete

    found = complete(sys.argv[1:], VERBS, make_parser)
    print(*found, ":4" if found else ":0", sep="\n")
    return 0


def overview() -> str:
    from transom.cli.help import definition_list, fill_paragraphs, help_width

    width = help_width()
    text = f"transom {__version__}: " + _OVERVIEW.format(verbs=definition_list(VERBS, width))
    return fill_paragraphs(text, width) + "\n"


_WORDS_BEFORE_COMMAND = 2  # exec NODE


def _unknown(verb: str) -> UserError:
    from difflib import get_close_matches

    near = get_close_matches(verb, VERBS, 1)
    hint = f"did you mean `transom {near[0]}`?" if near else "`transom --help` lists the verbs"
    return UserError(f"there is no verb {verb!r}", hint, EXIT_USAGE)


def _parse(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Options may appear between positional arguments, as in kubectl. Everything after `--` is
    positional.
    """
    words = parser._get_positional_actions()
    if any(action.nargs == argparse.PARSER for action in words):
        return parser.parse_args(arguments)  # a verb with subcommands, each with its own parser
    arguments = _end_of_options(parser, arguments)
    if "--" not in arguments:
        return parser.parse_intermixed_args(arguments)
    if not words or words[-1].nargs != argparse.ZERO_OR_MORE:
        return parser.parse_args(arguments)
    cut = arguments.index("--")
    args = parser.parse_intermixed_args(arguments[:cut])
    setattr(args, words[-1].dest, [*(getattr(args, words[-1].dest) or ()), *arguments[cut + 1 :]])
    return args


def _end_of_options(parser: argparse.ArgumentParser, arguments: list[str]) -> list[str]:
    """`transom node exec NODE COMMAND ...`: everything after COMMAND belongs to it. A `--` before
    COMMAND has the same effect.
    """
    if not parser.prog.endswith(" node"):
        return arguments
    values = {
        option
        for action in parser._actions
        if action.option_strings and action.nargs is None and action.const is None
        for option in action.option_strings
    }
    words, skip = 0, False
    for position, argument in enumerate(arguments):
        if argument == "--":
            break
        if skip or argument.startswith("-"):
            skip = not skip and argument in values
            continue
        words += 1
        if words == 1 and argument != "exec":
            return arguments
        if words == _WORDS_BEFORE_COMMAND + 1:
            return [*arguments[:position], "--", *arguments[position:]]
    return arguments


def make_parser(verb: str) -> tuple[argparse.ArgumentParser, Command]:
    from transom.cli.help import HelpFormatter

    module = _MODULES.get(verb) or verb.replace("-", "_")
    command: Command = import_module(f"transom.cli.{module}").COMMAND
    parser = argparse.ArgumentParser(
        prog=f"transom {verb}",
        description=command.help,
        epilog="examples:\n" + command.examples,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return parser, command


def _run(verb: str, arguments: list[str]) -> int:
    parser, command = make_parser(verb)
    return command.run(_parse(parser, arguments))


if __name__ == "__main__":
    sys.exit(main())
