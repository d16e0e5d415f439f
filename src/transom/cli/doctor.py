"""`transom doctor`: find problems of a cluster and their remedies."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any, Final

from transom.cli import console
from transom.cli.command import Command

if TYPE_CHECKING:
    from transom.doctor.findings import DoctorFinding
    from transom.doctor.snapshot import ClusterSnapshot

HELP = """\
Check a cluster and report problems with their cause and fix: API server, certificates, nodes,
DNS, services, pods, workloads, volumes, quotas, webhooks, and problems specific to Windows nodes.

It changes nothing and works with any Kubernetes cluster. For Transom clusters it also checks the
state of each machine. With names of nodes or pods it shows only findings about them and also
reads the logs of these pods.

The exit code is 1 if there is an error, 2 if a name does not exist, else 0; warnings leave it 0."""
EXAMPLES = """\
  transom doctor
  transom doctor windows-1
  transom doctor shop/web-0 --output json
  transom doctor --kubeconfig ~/.kube/config --context production
  transom report                     the findings and logs, for a bug report"""
_COLOURS = {"error": "red", "warning": "yellow", "info": "dim"}
_SHOWN = 3  # the number of places that are listed individually


# A line break in a command would break what the user pastes into a shell.
_UNBROKEN: Final = "\N{NO-BREAK SPACE}"


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NODE|POD",
        help="NAME, NAMESPACE/NAME, node/NAME, pod/NAME; default: all",
    )
    parser.add_argument(
        "--namespace",
        "-n",
        default="",
        metavar="NAMESPACE",
        help=(
            "namespace of names without one (default: from the context); without names: only "
            "findings about this namespace"
        ),
    )
    console.add_target_options(parser)
    console.add_output_option(parser)


def run_doctor_command(args: argparse.Namespace) -> int:
    from transom.doctor import connect as doctoring
    from transom.doctor.examine import UnknownName, checks, examine, places_to_check
    from transom.kit.user_errors import EXIT_USAGE, UserError

    where = doctoring.doctor_target(console.target_kubeconfig(args), args.context)
    seen = doctoring.take_snapshot(where, args.names, args.namespace)
    about = (
        places_to_check(seen, args.names, args.namespace or where.namespace or "default")
        if not seen.unreachable
        else ()
    )
    namespace = "" if args.names or seen.unreachable else args.namespace
    try:
        found = examine(seen, about, namespace)
    except UnknownName as problem:
        hint = "kubectl get namespaces lists them"
        raise UserError(f"there is no namespace {problem}", hint, EXIT_USAGE) from problem
    titles = [row.title for row in checks(seen)]
    if args.output != "text":
        console.print_value(findings_document(seen, found, titles), args.output)
    else:
        print(
            "\n".join(
                [*findings_page(found, terminal_width()), findings_summary(seen, found, titles)]
            )
        )
    return 1 if any(one.severity == "error" for one in found) else 0


def findings_document(
    seen: ClusterSnapshot, found: list[DoctorFinding], titles: list[str]
) -> dict[str, Any]:
    return {
        "server": seen.server,
        "version": seen.version.get("gitVersion"),
        "nodes": len(seen.nodes),
        "pods": len(seen.pods),
        "inside": bool(seen.inside),
        "checks": titles,
        "findings": [one.document() for one in found],
    }


def findings_page(found: list[DoctorFinding], columns: int) -> list[str]:
    lines: list[str] = []
    for section, windows in (("General", False), ("Windows", True)):
        chosen = [one for one in found if one.windows is windows]
        if chosen:
            lines += [
                console.colour_text(section, "bold"),
                *(line for one in chosen for line in _format_finding(one, columns)),
                "",
            ]
    return lines


def _format_finding(one: DoctorFinding, columns: int) -> list[str]:
    places = ", ".join(one.where[:_SHOWN]) + (
        f" and {len(one.where) - _SHOWN} more" if len(one.where) > _SHOWN else ""
    )
    head = f"{one.severity.upper():<8}"
    wrapped = textwrap.wrap(
        f"{places or 'cluster'}: {one.what}", columns - len(head), break_long_words=False
    )
    lines = [
        console.colour_text(head, _COLOURS[one.severity]) + wrapped[0],
        *(" " * len(head) + line for line in wrapped[1:]),
    ]
    from transom.doctor.findings import INLINE_COMMAND

    for label, text in (
        ("why:", one.why),
        ("fix:", one.remedy),
        ("see:", f"transom explain {one.record}" if one.record else ""),
    ):
        if text:
            wrapped = textwrap.wrap(
                INLINE_COMMAND.sub(lambda command: command[0].replace(" ", _UNBROKEN), text),
                columns,
                initial_indent=f"        {label:<5}",
                subsequent_indent=" " * 13,
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines += [line.replace(_UNBROKEN, " ") for line in wrapped]
        if label == "fix:":
            lines += [f"        run: {line}" for line in one.commands if line not in one.remedy]
    return lines


def findings_summary(seen: ClusterSnapshot, found: list[DoctorFinding], titles: list[str]) -> str:
    counts = {severity: sum(one.severity == severity for one in found) for severity in _COLOURS}
    summary = ", ".join(_count(count, severity) for severity, count in counts.items() if count)
    if seen.unreachable:
        return summary
    of = (
        f"{_count(len(titles), 'check')} of {_count(len(seen.nodes), 'node')} and "
        f"{_count(len(seen.pods), 'pod')}"
    )
    limits = "" if seen.inside else "; node-level checks skipped"
    return f"{summary or 'No findings'} ({of}{limits})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 or what == "info" else "s")


def terminal_width() -> int:
    return min(console.terminal_columns(110), 128)


COMMAND = Command(HELP, EXAMPLES, add_doctor_arguments, run_doctor_command)
