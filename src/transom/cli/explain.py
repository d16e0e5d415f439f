"""`transom explain`: what is known of a limit of Windows, or of a topic."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transom.cli import console

if TYPE_CHECKING:
    from transom.windows.records import Limit, Record, Support

HELP = """\
Explain a record of what Windows nodes can and cannot do: what is so, where it holds, what happens, what to do about it.

Name it by its id, as findings and warnings do; by the id of a statement of the documents; by an area (WIN-NET); or by
words: a field, a feature, part of a message. Several records are listed, one is told in full."""
EXAMPLES = """\
  transom explain WIN-SEC-009
  transom explain hostNetwork
  transom explain 'grace period'
  transom explain WIN-NET                 everything about the network
  transom explain WIN-SEC-009 --output json"""
_MANY = 5  # more are listed by their titles alone


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="+", metavar="ID|TOPIC", help="an id, an area or words")
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.lint.rules import OWN
    from transom.windows import registry

    query = " ".join(args.query)
    known: Mapping[str, Record] = {**registry.RECORDS, **OWN}
    found = registry.find(query, known)
    if not found:
        near = registry.similar(query, known)
        hint = f"did you mean {' or '.join(near)}?" if near else "`transom matrix` lists everything"
        console.failure(f"nothing is known of {query!r}", hint)
        return 1
    if args.output != "text":
        console.show([document(record) for record in found], args.output)
    elif len(found) > _MANY:
        width = _width()
        for record in found:
            print(textwrap.shorten(f"{record.id:<14}{record.title}", width, placeholder=" ..."))
        console.tell(f"\n{len(found)} records; `transom explain ID` tells more")
    else:
        print("\n\n".join(_page(record) for record in found))
    return 0


def document(record: Record) -> dict[str, Any]:
    """A record for programs: every field that says something."""
    from transom.windows import checklist, wording
    from transom.windows.records import Limit

    raw = record._asdict()
    shown: dict[str, Any] = {name: raw[name] for name in ("id", "title", "statement")}
    shown["type"] = "limit" if isinstance(record, Limit) else "support"
    shown["where"] = wording.where(record)
    for name, value in raw.items():
        if name in shown or value in ("", (), None, (0, None)):
            continue
        shown[name] = _plain(value)
    tests = checklist.tests((record.id, *record.checklist))
    if tests:
        shown["tests"] = tests
    return shown


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(inner) for name, inner in value._asdict().items() if inner != ""}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


def _page(record: Record) -> str:
    from transom.windows import checklist, wording
    from transom.windows.records import Limit

    lines = [console.paint(f"{record.id}  {record.title}", "bold"), "", _wrapped(record.statement), ""]
    rows = _limit(record) if isinstance(record, Limit) else _support(record)
    rows += [("Note", record.note), ("Document", f"{record.section}: {', '.join(record.checklist)}".rstrip(": "))]
    tests = checklist.tests((record.id, *record.checklist))
    rows.insert(1, ("Holds", wording.where(record)))
    rows += [("Shown by" if i == 0 else " ", test) for i, test in enumerate(tests)]
    for name, text in rows:
        if text:
            lines.append(_wrapped(text, f"{name + ':' if name.strip() else '':<12}"))
    return "\n".join(lines)


def _limit(limit: Limit) -> list[tuple[str, str]]:
    from transom.windows import wording

    fields = [("Fields" if i == 0 else " ", wording.field(field)) for i, field in enumerate(limit.fields)]
    given = [("With" if i == 0 else " ", wording.field(field)) for i, field in enumerate(limit.given)]
    return [("On Windows", wording.outcome(limit)), *fields, *given, ("Remedy", limit.remedy)]


def _support(record: Support) -> list[tuple[str, str]]:
    from transom.windows import wording

    label = "What to do" if record.kind == "symptom" else "Enable"
    return [("On Windows", wording.outcome(record)), (label, record.enable)]


def _wrapped(text: str, head: str = "") -> str:
    return textwrap.fill(
        text, _width(), initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False,
        break_long_words=False,
    )


def _width() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, 110)
