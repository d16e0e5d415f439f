"""The Why page: why a pod is scheduled where it is, what doctor finds, scenarios and faults to try,
and a timeline.

Decisions and findings are those of `transom explain-schedule` and `transom doctor`, computed in
child processes from the state of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from transom.http.messages import Answer, parse_query
from transom.machinery.errors import ApiError
from transom.web.child_jobs import Job
from transom.web.layout import page_response, scroll_box, tabs_heading
from transom.web.markup import Child, Markup, fragment, tag, with_code
from transom.web.pages import fault_switches, scenario_switches, timeline
from transom.web.responses import json_page, redirect_to_page
from transom.web.routing import Page, PageRequest, Route
from transom.web.scenario_runs import ScenarioPhase
from transom.web.workers import run_in_worker

MOST_LISTED: Final = 500
_MOST_ROWS: Final = 200  # nodes of a decision, and findings
_MOST_PLACES: Final = 20
_VIEWS: Final = (
    ("Pod", "/why"),
    ("Doctor", "/why/doctor"),
    ("Scenarios", "/why/scenarios"),
    ("Faults", "/why/faults"),
    ("Timeline", "/why/timeline"),
)
_ASK_AGAIN_SECONDS: Final = 10  # until doctor examines a scenario again that it does not report
_RESULT_SECONDS: Final = 2  # until the page looks for the result of an examination
_STATES: Final = {"error": "bad", "warning": "warn", "info": ""}


def _head(current: str) -> Markup:
    return tabs_heading("Why", _VIEWS, current)


# ---- a pod ----


async def show_why(request: PageRequest) -> Answer:
    pods = await _list(request, "pods")
    requested = request.query("pod").strip()
    namespace, _, name = requested.rpartition("/")
    namespace = namespace or request.services.namespace or "default"
    body: list[Child] = [_head("/why"), _pod_form(requested, pods)]
    if not name:
        return page_response(request, PAGE, *body, _pod_list(pods))
    found = await request.services.jobs.run(Job.EXPLAIN_POD, namespace, name)
    if found["problem"]:
        body.append(tag("p", found["problem"], role="alert", class_="problem"))
    if found["decision"] is not None:
        body.append(scheduling_report(found["decision"], found["filters"]))
    if found["causes"] is not None:
        body += [tag("h2", "Doctor"), findings_list(found["causes"])]
    link = f"/why/timeline?pod={quote(f'{namespace}/{name}')}"
    body.append(tag("p", tag("a", "Timeline of this pod", href=link)))
    return page_response(request, PAGE, *body, title=f"Why {name}")


async def _list(request: PageRequest, plural: str) -> list[Any]:
    """Objects of all namespaces, or of the one of the context if the user may not list them all."""
    query, services = {"limit": str(MOST_LISTED)}, request.services
    try:
        found = await services.api.get_json(f"/api/v1/{plural}", query)
    except ApiError as problem:
        if problem.code != 403:
            raise
        if plural == "nodes":
            return []
        path = f"/api/v1/namespaces/{services.namespace}/{plural}"
        found = await services.api.get_json(path, query)
    return list(found["items"])


def _pod_form(requested: str, pods: Sequence[Mapping[str, Any]]) -> Markup:
    return tag(
        "form",
        tag(
            "label",
            "Pod",
            tag(
                "input",
                name="pod",
                value=requested,
                list="pods",
                placeholder="default/web-0",
                required=True,
                autocomplete="off",
                spellcheck="false",
                data_filter=True,
            ),
            class_="field grow",
        ),
        tag("button", "Explain", type="submit", class_="primary"),
        tag("datalist", [tag("option", value=_pod_name(pod)) for pod in pods], id="pods"),
        class_="toolbar trace-form",
        method="get",
        action="/why",
    )


def _pod_name(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _pod_state(pod: Mapping[str, Any]) -> tuple[str, str]:
    """A word for the pod's state, as kubectl shows it, and the class of its badge."""
    status = pod.get("status", {})
    for one in status.get("containerStatuses", ()):
        waiting = one.get("state", {}).get("waiting", {}).get("reason", "")
        if waiting and waiting != "ContainerCreating":
            return waiting, "bad"
    phase = status.get("phase", "Unknown")
    ready = any(
        c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ())
    )
    if phase == "Running":
        return ("Running", "ok") if ready else ("not ready", "warn")
    return phase, {"Succeeded": "ok", "Pending": "warn"}.get(phase, "bad")


def _pod_list(pods: Sequence[Mapping[str, Any]]) -> Markup:
    """Pods with problems first."""
    rank = {"bad": 0, "warn": 1, "ok": 2}
    shown = sorted(pods, key=lambda pod: (rank[_pod_state(pod)[1]], _pod_name(pod)))[:50]
    rows = [
        tag(
            "tr",
            tag("td", tag("a", _pod_name(pod), href=f"/why?pod={quote(_pod_name(pod))}")),
            tag("td", tag("span", _pod_state(pod)[0], class_=f"badge {_pod_state(pod)[1]}")),
            tag("td", pod["spec"].get("nodeName") or "no node"),
        )
        for pod in shown
    ]
    head = [tag("th", title, scope="col") for title in ("Pod", "State", "Node")]
    return fragment(
        tag("h2", "Pods, problems first"),
        scroll_box("Pods", tag("table", tag("thead", tag("tr", head)), tag("tbody", rows)))
        if rows
        else tag("p", "There are no pods.", class_="muted"),
    )


def scheduling_report(document: Mapping[str, Any], filters: Sequence[str]) -> Markup:
    """Every node against every plugin: why it rejects the node, or its score."""
    nodes = document["nodes"]
    best = set(document["best"])
    node = document["nodeName"]
    state, text = ("bad", "cannot be scheduled") if not best else ("ok", "can be scheduled")
    if node:
        text = f"runs on {node}; decided again for the current state"
    rejecting = [plugin for plugin in filters if any(plugin in n["reasons"] for n in nodes)]
    others = [p for n in nodes for p in n["reasons"] if p not in filters]
    columns = [*rejecting, *dict.fromkeys(others)]
    scoring = list(dict.fromkeys(p for n in nodes for p in n["scores"]))
    shown = sorted(nodes, key=lambda n: (not n["feasible"], -n["total"], n["name"]))[:_MOST_ROWS]
    passing = [plugin for plugin in filters if plugin not in rejecting]
    feasible = [n for n in shown if n["feasible"]]
    return fragment(
        tag(
            "section",
            tag(
                "p", tag("span", text, class_=f"badge {state}"), " ", tag("strong", document["pod"])
            ),
            tag("p", document["message"]) if document["message"] else None,
            tag("p", f"Scheduler {document['schedulerName']}", class_="muted"),
            class_=f"card verdict {state}",
        ),
        tag("h2", "Nodes and filters"),
        _table(["Node", *columns], [_filter_row(n, columns, best) for n in shown]),
        tag("p", f"{len(nodes) - len(shown)} more nodes", class_="muted")
        if len(nodes) > len(shown)
        else None,
        tag("p", f"No node is rejected by {', '.join(passing)}.", class_="muted")
        if passing and nodes
        else None,
        [
            tag("h2", "Scores"),
            _table(["Node", "Total", *scoring], [_score_row(n, scoring, best) for n in feasible]),
            tag("p", "Score times weight of each plugin; one of the best nodes is chosen."),
        ]
        if scoring
        else None,
    )


def _table(titles: Sequence[str], rows: Sequence[Markup]) -> Markup:
    head = tag("thead", tag("tr", [tag("th", title, scope="col") for title in titles]))
    table = tag("table", head, tag("tbody", rows), class_="decision")
    return scroll_box(", ".join(titles), table)


def _node_cell(node: Mapping[str, Any], best: set[str]) -> Markup:
    mark: Child = [" ", tag("span", "best", class_="badge ok")] if node["name"] in best else None
    return tag("th", node["name"], mark, scope="row", class_="fit")


def _filter_row(node: Mapping[str, Any], columns: Sequence[str], best: set[str]) -> Markup:
    cells: list[Child] = [_node_cell(node, best)]
    for plugin in columns:
        reasons = node["reasons"].get(plugin)
        cells.append(
            tag("td", "; ".join(reasons), class_="rejects")
            if reasons
            else tag("td", "✓", class_="passes")
        )
    return tag("tr", cells)


def _score_row(node: Mapping[str, Any], scoring: Sequence[str], best: set[str]) -> Markup:
    cells: list[Child] = [_node_cell(node, best), tag("td", node["total"], class_="number")]
    for plugin in scoring:
        score = node["scores"].get(plugin)
        text = f"{score['score']} × {score['weight']}" if score else ""
        cells.append(tag("td", text, class_="number"))
    return tag("tr", cells)


# ---- doctor ----


async def show_doctor(request: PageRequest) -> Answer:
    found = await request.services.jobs.run(Job.DOCTOR)
    counts = {severity: sum(one["severity"] == severity for one in found) for severity in _STATES}
    badges = [
        tag("span", _count(count, severity), class_=f"badge {_STATES[severity]}")
        for severity, count in counts.items()
        if count
    ]
    summary = tag("p", badges or tag("span", "no findings", class_="badge ok"), class_="toolbar")
    return page_response(
        request, PAGE, _head("/why/doctor"), summary, findings_list(found), title="Doctor"
    )


def _count(count: int, severity: str) -> str:
    return f"{count} {severity}{'' if count == 1 or severity == 'info' else 's'}"


def findings_list(found: Sequence[Mapping[str, Any]]) -> Markup:
    if not found:
        return tag("p", "Doctor finds no problem.", class_="muted")
    return fragment(
        [_finding(one) for one in found[:_MOST_ROWS]],
        tag("p", f"{len(found) - _MOST_ROWS} more findings", class_="muted")
        if len(found) > _MOST_ROWS
        else None,
    )


def _command_lines(one: Mapping[str, Any]) -> Child:
    lines = [line for line in one.get("commands", ()) if line not in one["remedy"]]
    return [tag("p", tag("code", line), class_="command") for line in lines]


def _finding(one: Mapping[str, Any]) -> Markup:
    places = list(one.get("where", ()))
    more = one.get("count", len(places)) - _MOST_PLACES
    record = one.get("record", "")
    rows: list[tuple[str, Child]] = [
        ("Where", ", ".join(places[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")),
        ("Why", with_code(one["why"]) if one.get("why") else ""),
        ("Fix", with_code(one["remedy"]) if one.get("remedy") else ""),
        ("Run", _command_lines(one)),
        ("See", tag("a", record, href=f"/windows?show={record}#{record}") if record else ""),
    ]
    return tag(
        "article",
        tag(
            "p",
            tag("span", one["severity"], class_=f"badge {_STATES[one['severity']]}"),
            " ",
            tag("strong", one["what"]),
        ),
        tag("dl", [[tag("dt", n), tag("dd", t)] for n, t in rows if t], class_="facts"),
        class_=f"card verdict {_STATES[one['severity']]}".strip(),
    )


# ---- scenarios ----


async def show_scenarios(request: PageRequest) -> Answer:
    """All scenarios; doctor's findings about the one that is on."""
    nodes = await scenario_switches.windows_node_names(request)
    if nodes is None:
        text = "Only clusters of `transom up` have scenarios."
        body: Child = tag("p", text, class_="notice")
    else:
        state = await request.services.scenarios.read_state()
        found: Child = None
        if state.phase in (ScenarioPhase.STARTING, ScenarioPhase.ON):
            found = [tag("h3", "Doctor"), await _scenario_findings(request, state.name)]
        body = scenario_switches.render_scenarios(request, state, nodes, found)
    return page_response(
        request,
        PAGE,
        _head("/why/scenarios"),
        body,
        title="Scenarios",
        script="scenarios.js",
    )


async def _scenario_findings(request: PageRequest, name: str) -> Markup:
    """Doctor's findings about a scenario. Without one, the page asks again after some seconds, also
    if doctor could not examine the cluster this time.
    """
    text, seconds = "Doctor does not report it yet.", _ASK_AGAIN_SECONDS
    try:
        causes = await request.services.scenario_doctor.find_causes()
        if causes is None:
            text, seconds = "Doctor examines the cluster.", _RESULT_SECONDS
        elif about := scenario_switches.related_findings(name, causes):
            return findings_list(about)
    except ApiError as problem:
        text = f"Doctor cannot examine the cluster now: {problem.message}"
    return tag("p", text, id="not-reported", class_="muted", data_seconds=seconds)


async def scenario_state(request: PageRequest) -> Answer:
    state = await request.services.scenarios.read_state()
    return json_page({"phase": state.phase.value, "name": state.name, "node": state.node})


async def set_scenario(request: PageRequest) -> Answer:
    form = _form_values(request)
    name = form.get("scenario", "")
    if form.get("on") == "true":
        await request.services.scenarios.start_scenario(name, form.get("node", ""))
    else:
        await request.services.scenarios.end_scenario(name)
    return redirect_to_page(f"/why/scenarios#{quote(name)}")


def _form_values(request: PageRequest) -> dict[str, str]:
    return {key: values[-1] for key, values in parse_query(request.http.body).items() if values}


# ---- faults ----


async def show_faults(request: PageRequest) -> Answer:
    body = await fault_switches.render_faults(request)
    return page_response(request, PAGE, _head("/why/faults"), body, title="Faults")


async def set_fault(request: PageRequest) -> Answer:
    form = _form_values(request)
    await fault_switches.switch_fault(
        request.services.api, form.get("node", ""), form.get("fault", ""), form.get("on") == "true"
    )
    return redirect_to_page(f"/why/faults#{quote(form.get('node', ''))}")


# ---- timeline ----


async def show_timeline(request: PageRequest) -> Answer:
    pod = request.query("pod").strip()
    return page_response(
        request,
        PAGE,
        _head("/why/timeline"),
        timeline.render_timeline_frame(pod),
        title="Timeline",
    )


async def timeline_data(request: PageRequest) -> Answer:
    """Entries of one pod (NAMESPACE/NAME), or of all objects."""
    lists = await asyncio.gather(*(_list(request, kind) for kind in ("events", "pods", "nodes")))
    return json_page(
        await run_in_worker(timeline.timeline_document, *lists, request.query("pod").strip())
    )


PAGE = Page(
    "why",
    "Why",
    "/why",
    (
        Route("GET", "/why", show_why),
        Route("GET", "/why/doctor", show_doctor),
        Route("GET", "/why/scenarios", show_scenarios),
        Route("POST", "/why/scenarios", set_scenario),
        Route("GET", "/why/scenarios/state", scenario_state),
        Route("GET", "/why/faults", show_faults),
        Route("POST", "/why/faults", set_fault),
        Route("GET", "/why/timeline", show_timeline),
        Route("GET", "/why/timeline/data", timeline_data),
    ),
)
