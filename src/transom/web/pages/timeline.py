"""What happened when: events, status changes, restarts and node conditions as one list by time.

Pure functions on objects of the API. The browser draws the list and lets users move through time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from transom.web.layout import scroll_box
from transom.web.markup import Markup, tag

MOST_ENTRIES: Final = 2000
_LONGEST_TEXT: Final = 400
_GOOD_NODE: Final = {"Ready": "True"}  # all other conditions of a node are good if they are False

Entry = dict[str, Any]


def timeline_document(
    events: Sequence[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    pod: str = "",
) -> dict[str, Any]:
    """The newest entries, oldest first; with `pod` (NAMESPACE/NAME) those of the pod and its node."""
    if pod:
        pods = [one for one in pods if _place(one) == f"pod/{pod}"]
        hosts = {one["spec"].get("nodeName") for one in pods}
        nodes = [one for one in nodes if one["metadata"]["name"] in hosts]
        wanted = {f"pod/{pod}", *(f"node/{host}" for host in hosts)}
        events = [event for event in events if event_place(event) in wanted]
    entries = [
        *(entry for event in events for entry in _event_entries(event)),
        *(entry for one in pods for entry in _pod_entries(one)),
        *(entry for node in nodes for entry in _node_entries(node)),
    ]
    entries = [entry for entry in entries if entry["time"]]
    entries.sort(key=lambda entry: (entry["time"], entry["object"]))
    return {"entries": entries[-MOST_ENTRIES:], "more": max(0, len(entries) - MOST_ENTRIES)}


def _entry(time: str | None, place: str, kind: str, severity: str, text: str) -> Entry:
    short = text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
    return {"time": time or "", "object": place, "kind": kind, "severity": severity, "text": short}


def _place(item: Mapping[str, Any], kind: str = "pod") -> str:
    meta = item["metadata"]
    return f"{kind}/{meta['namespace']}/{meta['name']}"


def event_place(event: Mapping[str, Any]) -> str:
    about = event.get("involvedObject", {})
    parts = (str(about.get("kind", "")).lower(), about.get("namespace"), about.get("name"))
    if parts[0] == "node":
        return f"node/{about.get('name', '')}"
    return "/".join(part for part in parts if part)


def _event_entries(event: Mapping[str, Any]) -> Iterator[Entry]:
    """The first and the last time of an event that was repeated."""
    count = event.get("count") or (event.get("series") or {}).get("count") or 1
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or (event.get("series") or {}).get("lastObservedTime")
    first = first or last or event["metadata"].get("creationTimestamp")
    severity = "warning" if event.get("type") == "Warning" else "info"
    text = f"{event.get('reason', '')}: {event.get('message', '')}"
    yield _entry(first, event_place(event), "event", severity, text)
    if count > 1 and last and last != first:
        yield _entry(last, event_place(event), "event", severity, f"{text} ({count} times)")


def _pod_entries(pod: Mapping[str, Any]) -> Iterator[Entry]:
    place, meta, status = _place(pod), pod["metadata"], pod.get("status", {})
    yield _entry(meta.get("creationTimestamp"), place, "status", "info", "created")
    if meta.get("deletionTimestamp"):
        yield _entry(meta["deletionTimestamp"], place, "status", "warning", "deleted")
    for condition in status.get("conditions", ()):
        yield _condition(condition, place, "status", condition["status"] == "True")
    for container in (
        *status.get("initContainerStatuses", ()),
        *status.get("containerStatuses", ()),
    ):
        yield from _container_entries(container, place)


def _container_entries(container: Mapping[str, Any], place: str) -> Iterator[Entry]:
    name, restarts = container["name"], container.get("restartCount", 0)
    running = container.get("state", {}).get("running")
    if running:
        again = f", restart {restarts}" if restarts else ""
        severity = "warning" if restarts else "info"
        text = f"container {name} started{again}"
        yield _entry(running.get("startedAt"), place, "restart", severity, text)
    for state in (container.get("state", {}), container.get("lastState", {})):
        ended = state.get("terminated")
        if not ended:
            continue
        code = ended.get("exitCode", 0)
        severity = "info" if code == 0 else "error"
        text = f"container {name} ended: {ended.get('reason', '')}, exit code {code}"
        yield _entry(ended.get("startedAt"), place, "restart", "info", f"container {name} started")
        yield _entry(ended.get("finishedAt"), place, "restart", severity, text)


def _node_entries(node: Mapping[str, Any]) -> Iterator[Entry]:
    place = f"node/{node['metadata']['name']}"
    yield _entry(node["metadata"].get("creationTimestamp"), place, "status", "info", "registered")
    for condition in node.get("status", {}).get("conditions", ()):
        good = _GOOD_NODE.get(condition["type"], "False") == condition["status"]
        yield _condition(condition, place, "condition", good)
    for taint in node.get("spec", {}).get("taints", ()):
        if taint.get("timeAdded"):
            text = f"taint {taint['key']}:{taint['effect']}"
            yield _entry(taint["timeAdded"], place, "condition", "warning", text)


def _condition(condition: Mapping[str, Any], place: str, kind: str, good: bool) -> Entry:
    parts: Iterable[str] = (condition.get("reason", ""), condition.get("message", ""))
    why = ": ".join(part for part in parts if part)
    text = f"{condition['type']} is {condition['status']}" + (f" ({why})" if why else "")
    severity = "info" if good else "warning"
    return _entry(condition.get("lastTransitionTime"), place, kind, severity, text)


def render_timeline_frame(pod: str) -> Markup:
    """The controls; timeline.js of the page fills them."""
    return tag(
        "div",
        tag(
            "form",
            tag(
                "label",
                "Pod",
                tag(
                    "input",
                    name="pod",
                    value=pod,
                    placeholder="all objects, or NAMESPACE/NAME",
                    data_filter=True,
                    autocomplete="off",
                    spellcheck="false",
                ),
                class_="field grow",
            ),
            tag("button", "Show", type="submit"),
            tag("button", "Refresh", type="button", id="refresh"),
            class_="toolbar trace-form",
            method="get",
            action="/why/timeline",
        ),
        tag(
            "div",
            tag("button", "▶ Play", type="button", id="play", aria_pressed="false"),
            tag(
                "input",
                type="range",
                id="scrub",
                min=0,
                max=1000,
                value=1000,
                aria_label="Time",
            ),
            tag("output", id="moment", for_="scrub"),
            class_="toolbar scrubber",
        ),
        scroll_box("Chart", id_="chart", class_="timeline-chart"),
        tag("h2", "Until then"),
        scroll_box("Entries", id_="entries"),
        id="timeline",
        data_pod=pod,
    )
