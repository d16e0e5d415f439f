"""`transom doctor`: what is wrong with a cluster, and what to do about it."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from transom.cli import console

if TYPE_CHECKING:
    from transom.doctor.findings import Finding
    from transom.doctor.snapshot import Snapshot

HELP = """\
Examine a cluster and say what is wrong, where, why it matters and what to do next. First what any cluster may have: the API
server, nodes, names, services, pods, quotas, webhooks; then what Windows nodes add.

It reads and changes nothing, and works with any Kubernetes cluster. Clusters of transom tell more: what only a node knows.
With names of nodes or pods, only what concerns them is told, and logs of such pods are read too.

The exit code is 1 if something is wrong (an error), else 0."""
EXAMPLES = """\
  transom doctor
  transom doctor windows-1
  transom doctor shop/web-0 --output json
  transom doctor --kubeconfig ~/.kube/config --context production
  transom report                     the same and logs, for a report of a bug"""
_COLOURS = {"error": "red", "warning": "yellow", "info": "dim"}
_SHOWN = 3  # places that are told one by one


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NODE|POD", help="NAME, NAMESPACE/NAME, node/NAME, pod/NAME; default: all")
    parser.add_argument("--namespace", "-n", default="", metavar="NAME", help="of bare names (default: that of the context)")
    console.target_options(parser)
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import doctoring
    from transom.doctor.examine import checks, examine, places

    where = doctoring.target(console.target(args), args.context)
    seen = doctoring.look(where, args.names, args.namespace)
    about = places(seen, args.names, args.namespace or where.namespace or "default") if not seen.unreachable else ()
    found = examine(seen, about)
    titles = [row.title for row in checks(seen)]
    if args.output != "text":
        console.show(document(seen, found, titles), args.output)
    else:
        print("\n".join([*page(found, width()), summary(seen, found, titles)]))
    return 1 if any(one.severity == "error" for one in found) else 0


def document(seen: Snapshot, found: list[Finding], titles: list[str]) -> dict[str, Any]:
    return {
        "server": seen.server, "version": seen.version.get("gitVersion"), "nodes": len(seen.nodes), "pods": len(seen.pods),
        "inside": bool(seen.inside), "checks": titles, "findings": [one.document() for one in found],
    }  # fmt: skip


def page(found: list[Finding], columns: int) -> list[str]:
    lines: list[str] = []
    for section, windows in (("General", False), ("Windows", True)):
        chosen = [one for one in found if one.windows is windows]
        if chosen:
            lines += [console.paint(section, "bold"), *(line for one in chosen for line in _told(one, columns)), ""]
    return lines


def _told(one: Finding, columns: int) -> list[str]:
    places = ", ".join(one.where[:_SHOWN]) + (f" and {len(one.where) - _SHOWN} more" if len(one.where) > _SHOWN else "")
    head = f"{one.severity.upper():<8}"
    wrapped = textwrap.wrap(f"{places or 'cluster'}: {one.what}", columns - len(head), break_long_words=False)
    lines = [console.paint(head, _COLOURS[one.severity]) + wrapped[0], *(" " * len(head) + line for line in wrapped[1:])]
    known = f"transom explain {one.record}" + (f" ({', '.join(one.statements[:4])})" if one.statements else "")
    for label, text in (("why:", one.why), ("do:", one.remedy), ("see:", known if one.record else "")):
        if text:
            lines += textwrap.wrap(text, columns, initial_indent=f"        {label:<5}", subsequent_indent=" " * 13,
                                   break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return lines


def summary(seen: Snapshot, found: list[Finding], titles: list[str]) -> str:
    counts = {severity: sum(one.severity == severity for one in found) for severity in _COLOURS}
    told = ", ".join(_count(count, severity) for severity, count in counts.items() if count)
    if seen.unreachable:
        return told
    of = f"{_count(len(titles), 'check')} of {_count(len(seen.nodes), 'node')} and {_count(len(seen.pods), 'pod')}"
    limits = "" if seen.inside else "; what only nodes themselves know was not told"
    return f"{told or 'nothing is wrong'} ({of}{limits})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 or what == "info" else "s")


def width() -> int:
    return min(shutil.get_terminal_size((110, 24)).columns, 128)
