"""The Windows page: the support matrix of `transom matrix` as a table, each record with its source and
an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

from transom.http.messages import Answer
from transom.kit.lazy import lazy_import
from transom.web.layout import page_response, scroll_box
from transom.web.markup import Child, Markup, tag
from transom.web.routing import Page, PageRequest, Route
from transom.web.workers import run_in_worker

if TYPE_CHECKING:
    from transom.web.pages import node_choice
    from transom.windows import examples, record_documents, registry, releases, wording
    from transom.windows import records as record_types
    from transom.windows.records import NodeTarget, Record
else:  # records are read when the page is opened
    node_choice = lazy_import("transom.web.pages.node_choice")
    examples = lazy_import("transom.windows.examples")
    record_documents = lazy_import("transom.windows.record_documents")
    record_types = lazy_import("transom.windows.records")
    registry = lazy_import("transom.windows.registry")
    releases = lazy_import("transom.windows.releases")
    wording = lazy_import("transom.windows.wording")

_STATES: Final = {"fails": "bad", "rejected": "bad", "ignored": "warn", "degraded": "warn"}
_KINDS: Final = (("", "all"), ("limit", "limitations"), ("supported", "what works"))


async def show_windows(request: PageRequest) -> Answer:
    choice = node_choice.read_choice(request.query, await node_choice.server_release(request))
    kind = request.query("kind")
    shown = request.query("show").upper()
    records = [
        record
        for record in record_documents.matrix_records(choice.target())
        if _wanted(record, kind)
    ]
    if shown in registry.RECORDS and registry.RECORDS[shown] not in records:
        records.insert(0, registry.RECORDS[shown])
    fields = [
        *node_choice.choice_fields(choice),
        node_choice.select_input("kind", "Show", _KINDS, kind),
    ]
    search = tag(
        "label",
        "Filter",
        tag(
            "input",
            type="search",
            id="filter",
            placeholder="hostNetwork, DNS, WIN-NET...",
            data_filter=True,
            autocomplete="off",
        ),
        class_="field grow",
    )
    return page_response(
        request,
        PAGE,
        tag("link", rel="stylesheet", href="/static/why.css"),
        tag("h1", "Windows"),
        tag(
            "form",
            fields,
            search,
            tag("button", "Show", type="submit", id="apply"),
            class_="toolbar trace-form",
            method="get",
            action="/windows",
            id="choice",
        ),
        _release_facts(choice.target()),
        tag("p", f"{len(records)} records", id="count", class_="muted", aria_live="polite"),
        scroll_box("Records", await run_in_worker(_table, records, shown)),
    )


def _wanted(record: Record, kind: str) -> bool:
    limit = isinstance(record, record_types.WindowsLimit)
    return not kind or (limit if kind == "limit" else not limit)


def _release_facts(target: NodeTarget) -> Markup:
    facts = releases.release_facts(target.release)
    supported = ", ".join(wording.build_name(number) for number in facts.builds)
    runtimes = ", ".join(f"{name} {version} or later" for name, version in facts.runtimes().items())
    rows = [("Builds", supported), ("Runtimes", runtimes), ("Pause image", facts.pause)]
    unsupported = target.build is not None and target.build not in facts.builds
    return tag(
        "section",
        tag("h2", f"Kubernetes {releases.release_text(target.release)} on Windows"),
        tag("dl", [[tag("dt", name), tag("dd", text)] for name, text in rows], class_="facts"),
        tag(
            "p",
            f"Kubernetes {releases.release_text(target.release)} does not support build "
            f"{target.build} as a node.",
            class_="notice",
        )
        if unsupported
        else None,
        class_="card",
    )


def _table(records: list[Record], shown: str) -> Markup:
    head = [tag("th", title, scope="col") for title in ("Id", "Record", "On Windows", "Applies")]
    return tag(
        "table",
        tag("thead", tag("tr", head)),
        tag("tbody", [_row(record, record.id == shown) for record in records]),
        id="records",
        class_="records",
    )


def _row(record: Record, opened: bool) -> Markup:
    if isinstance(record, record_types.WindowsLimit):
        state, outcome = _STATES[record.effect], wording.EFFECTS[record.effect]
    else:
        state = "ok" if record.kind == "supported" else ""
        outcome = wording.record_outcome(record)
    return tag(
        "tr",
        tag("td", tag("a", record.id, href=f"#{record.id}"), class_="fit"),
        tag("td", tag("details", tag("summary", record.title), _details(record), open=opened)),
        tag("td", tag("span", outcome, class_=f"badge {state}".strip()), class_="fit"),
        tag("td", wording.record_location(record)),
        id=record.id,
        data_text=" ".join((record.id, record.title, record.statement, *record.topics)).lower(),
    )


def _details(record: Record) -> Markup:
    """Statement, facts, source and example."""
    rows: list[tuple[str, Child]] = []
    if isinstance(record, record_types.WindowsLimit):
        rows.append(("On Windows", wording.record_outcome(record)))
        fields = [*record.fields, *record.given]
        if fields:
            rows.append(
                (
                    "Fields",
                    tag(
                        "ul", [tag("li", tag("code", wording.field_wording(f))) for f in fields[:8]]
                    ),
                )
            )
    rows.append(
        (
            "Remedy" if isinstance(record, record_types.WindowsLimit) else "Use",
            wording.record_remedy(record),
        )
    )
    rows.append(("Note", record.note))
    page = wording.documentation_page(record)
    source = [tag("a", "Kubernetes documentation", href=page, rel="noreferrer", target="_blank")]
    rows.append(("Source", [source, f", {record.section}" if record.section else ""]))
    rows.append(("In the terminal", tag("code", f"transom explain {record.id}")))
    example = (
        examples.example_object(record) if isinstance(record, record_types.WindowsLimit) else None
    )
    return tag(
        "div",
        tag("p", record.statement),
        tag(
            "dl",
            [[tag("dt", name), tag("dd", text)] for name, text in rows if text],
            class_="facts",
        ),
        [
            tag("p", tag("strong", "Example")),
            tag(
                "pre",
                yaml.safe_dump(example, sort_keys=False),
                tabindex="0",
                role="region",
                aria_label=f"Example of {record.id}",
            ),
        ]
        if example
        else None,
    )


PAGE = Page("windows", "Windows", "/windows", (Route("GET", "/windows", show_windows),))
