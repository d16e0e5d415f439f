"""`transom explain`: explain a Windows limitation or a topic."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from transom.cli import console
from transom.cli.command import Command

if TYPE_CHECKING:
    from transom.windows.records import Record, WindowsLimit, WindowsSupport

HELP = """\
Explain what Windows nodes can and cannot do: the limitation, where it applies, what happens and how to work around it.

Pass the id from a finding or warning, an area (WIN-NET), or words: a field, a feature, part of a
message. Several matches are listed; a single match is shown in full."""
EXAMPLES = """\
  transom explain WIN-SEC-009
  transom explain hostNetwork
  transom explain 'grace period'
  transom explain WIN-NET                 all records about the network
  transom explain WIN-SEC-009 --output json"""
_MANY = 5  # if there are more, only their titles are listed


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="+", metavar="ID|TOPIC", help="an id, an area or words")
    console.add_output_option(parser)


def run_explain_command(args: argparse.Namespace) -> int:
    from transom.lint.rules import OWN
    from transom.lint.upgrade_checks import UPGRADE_RECORDS
    from transom.windows import registry
    from transom.windows.record_documents import record_document

    query = " ".join(args.query)
    known: Mapping[str, Record] = {**registry.RECORDS, **OWN, **UPGRADE_RECORDS}
    found = registry.find_records(query, known)
    if not found:
        near = registry.similar_records(query, known)
        areas = ", ".join(sorted({id.rpartition("-")[0] for id in known}))
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"ids begin with {areas}; `transom matrix` lists all records"
        )
        console.print_failure(f"there is no record {query!r}", hint)
        return 2
    if args.output != "text":
        console.print_value([record_document(record) for record in found], args.output)
    elif len(found) > _MANY:
        width = _width()
        for record in found:
            print(textwrap.shorten(f"{record.id:<14}{record.title}", width, placeholder=" ..."))
        console.print_progress(f"\n{len(found)} records; `transom explain ID` shows details")
    else:
        print("\n\n".join(_page(record) for record in found))
    return 0


def _page(record: Record) -> str:
    from transom.windows import wording
    from transom.windows.records import WindowsLimit

    lines = [
        console.colour_text(f"{record.id}  {record.title}", "bold"),
        "",
        _wrapped(record.statement),
        "",
    ]
    rows = _limit(record) if isinstance(record, WindowsLimit) else _support(record)
    rows += [
        ("Note", record.note),
        ("Section", record.section),
        ("See", wording.documentation_page(record)),
    ]
    rows.insert(1, ("Applies", wording.record_location(record)))
    for name, text in rows:
        if text:
            lines.append(_wrapped(text, f"{name + ':' if name.strip() else '':<12}"))
    return "\n".join(lines)


def _limit(limit: WindowsLimit) -> list[tuple[str, str]]:
    from transom.windows import wording

    fields = [
        ("Fields" if i == 0 else " ", wording.field_wording(field))
        for i, field in enumerate(limit.fields)
    ]
    given = [
        ("With" if i == 0 else " ", wording.field_wording(field))
        for i, field in enumerate(limit.given)
    ]
    return [
        ("On Windows", wording.record_outcome(limit)),
        *fields,
        *given,
        ("Remedy", limit.remedy),
    ]


def _support(record: WindowsSupport) -> list[tuple[str, str]]:
    from transom.windows import wording

    label = "What to do" if record.kind == "symptom" else "Enable"
    return [("On Windows", wording.record_outcome(record)), (label, record.enable)]


def _wrapped(text: str, head: str = "") -> str:
    return textwrap.fill(
        text,
        _width(),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _width() -> int:
    return min(console.terminal_columns(100), 110)


COMMAND = Command(HELP, EXAMPLES, add_explain_arguments, run_explain_command)
