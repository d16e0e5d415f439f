"""Scenarios as switches: those of `transom scenario list`, each with symptom, evidence and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from transom.kit.lazy import lazy_import
from transom.machinery.errors import ApiError
from transom.web.markup import Child, Markup, fragment, tag, with_code
from transom.web.routing import PageRequest
from transom.web.scenario_runs import ScenarioPhase, ScenarioState

if TYPE_CHECKING:
    from transom.scenarios import catalogue, model
    from transom.scenarios.model import Scenario
else:
    catalogue = lazy_import("transom.scenarios.catalogue")
    model = lazy_import("transom.scenarios.model")

_PHASES = {
    ScenarioPhase.STARTING: ("warn", "starting: this takes up to some minutes"),
    ScenarioPhase.ON: ("bad", "on"),
    ScenarioPhase.ENDING: ("warn", "ending"),
}


async def windows_node_names(request: PageRequest) -> list[str] | None:
    """The nodes that a scenario can use; None if the cluster is not one of `transom up`."""
    try:
        machines = (await request.services.api.get_json("/transom/nodes"))["items"]
    except ApiError as problem:
        if problem.code == 404:
            return None
        raise
    return [one["name"] for one in machines if one["os"] == "windows" and one["ready"]]


def render_scenarios(
    request: PageRequest, state: ScenarioState, nodes: Sequence[str], found: Child
) -> Markup:
    """`found` is what doctor reports about the scenario that is on."""
    every = catalogue.SCENARIOS.values()
    return fragment(
        tag(
            "p",
            "A scenario produces a known fault in the namespace ",
            tag("code", "scenario"),
            ", one at a time. The same as ",
            tag("code", "transom scenario run NAME"),
            ".",
            class_="muted",
        ),
        tag("p", state.problem, role="alert", class_="problem") if state.problem else None,
        tag("p", "No Windows node is ready.", class_="notice") if not nodes else None,
        tag(
            "div",
            [_card(request, one, state, nodes, found) for one in every],
            class_="fault-cards",
            id="scenarios",
            data_phase=state.phase.value,
            data_name=state.name,
        ),
    )


def related_findings(name: str, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Doctor's findings about a scenario, as `transom scenario run` selects them."""
    scenario = catalogue.SCENARIOS.get(name)
    return [one for one in found if scenario is not None and scenario.finding in one["what"]]


def _card(
    request: PageRequest, one: Scenario, state: ScenarioState, nodes: Sequence[str], found: Child
) -> Markup:
    on = state.name == one.name
    busy = state.phase is ScenarioPhase.ENDING or (state.phase is not ScenarioPhase.OFF and not on)
    badge: Child = None
    if on:
        kind, text = _PHASES[state.phase]
        badge = tag("p", tag("span", f"{text} ({state.node})", class_=f"badge {kind}"))
    rows: list[tuple[str, Child]] = [
        ("Symptom", with_code(one.symptom)),
        ("Evidence", tag("code", one.evidence.replace("NODE", state.node) if on else one.evidence)),
        ("Remedy", with_code(one.remedy)),
        ("Releases", model.scenario_releases(one) or None),
        ("Issue", issue_link(one.issue) if one.issue else None),
    ]
    return tag(
        "section",
        tag(
            "form",
            _hidden(request, one.name, not on),
            tag(
                "button",
                tag("span", class_="switch-track"),
                tag("span", tag("strong", one.title), tag("span", one.name, class_="muted")),
                type="submit",
                role="switch",
                aria_checked="true" if on else "false",
                class_="switch",
                disabled=busy or (not on and not nodes),
            ),
            _node_field(nodes) if not on and not busy and len(nodes) > 1 else None,
            method="post",
            action="/why/scenarios",
        ),
        badge,
        tag("dl", [[tag("dt", n), tag("dd", t)] for n, t in rows if t], class_="facts"),
        found if on else None,
        class_=f"card{' wide' if on else ''}",
        id=quote(one.name),
    )


def _node_field(nodes: Sequence[str]) -> Markup:
    options = [tag("option", name, value=name) for name in nodes]
    return tag("label", "Node", tag("select", options, name="node"), class_="field")


def issue_link(issue: str) -> Markup:
    """ "kubernetes/kubernetes#135802" as a link."""
    repository, _, number = issue.partition("#")
    address = f"https://github.com/{quote(repository)}/issues/{quote(number)}"
    return tag("a", issue, href=address, rel="noreferrer", target="_blank")


def _hidden(request: PageRequest, name: str, on: bool) -> list[Markup]:
    values = {"csrf": request.session.csrf, "scenario": name, "on": "true" if on else "false"}
    return [tag("input", type="hidden", name=key, value=value) for key, value in values.items()]
