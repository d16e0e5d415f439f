"""The Trace page: the path of a packet, hop by hop, the flows that work, and the HNS of a node.

It shows what `transom trace`, `transom trace --matrix` and `transom hns` print, from the same paths of
the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from transom.http.messages import Answer
from transom.kit.lazy import lazy_import
from transom.machinery.errors import ApiError
from transom.web.layout import page_response, scroll_box, tabs_heading
from transom.web.markup import Child, Markup, fragment, tag
from transom.web.pages import hns_tree, trace_picture
from transom.web.routing import Page, PageRequest, Route

if TYPE_CHECKING:
    from transom.network.trace import report
else:
    report = lazy_import("transom.network.trace.report")

MOST_LISTED: Final = 500  # of each kind of endpoint
_MOST_NODES: Final = 5  # of the heat map, and of pods and services
_PARALLEL: Final = 8
_PROTOCOLS: Final = ("tcp", "udp", "icmp")
_NO_TRACE: Final = (
    "This cluster has no /transom paths: only clusters of `transom up` know their network in full."
)
_VIEWS: Final = (
    ("Path", "/trace"),
    ("Documented flows", "/trace/flows"),
    ("Heat map", "/trace/pairs"),
    ("HNS", "/trace/hns"),
)


class TraceEndpoints:
    """The pods, services and nodes that a trace may start from or lead to."""

    def __init__(self, pods: list[Any], services: list[Any], nodes: list[Any]) -> None:
        self.pods = pods
        self.services = services
        self.nodes = nodes

    def pod_nodes(self) -> dict[str, str]:
        return {_name(pod): pod["spec"].get("nodeName", "") for pod in self.pods}

    def pod_addresses(self) -> dict[str, str]:
        """The pod of each address."""
        return {
            pod["status"]["podIP"]: _name(pod)
            for pod in self.pods
            if pod["status"].get("podIP") and not pod["spec"].get("hostNetwork")
        }

    def machines(self) -> dict[str, trace_picture.LaneFacts]:
        return {node["metadata"]["name"]: _lane_facts(node) for node in self.nodes}

    def names(self) -> list[str]:
        return [
            *(f"pod/{_name(pod)}" for pod in self.pods if pod["status"].get("phase") == "Running"),
            *(f"svc/{_name(service)}" for service in self.services),
            *(f"node/{node['metadata']['name']}" for node in self.nodes),
            "external",
        ]

    def windows_nodes(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.nodes if _os(node) == "windows"]


def _name(item: Mapping[str, Any]) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def _os(node: Mapping[str, Any]) -> str:
    return str(node["status"].get("nodeInfo", {}).get("operatingSystem", ""))


def _lane_facts(node: Mapping[str, Any]) -> trace_picture.LaneFacts:
    info, addresses = node["status"].get("nodeInfo", {}), node["status"].get("addresses", [])
    address = next((one["address"] for one in addresses if one["type"] == "InternalIP"), "")
    about = [_os(node).capitalize(), address]
    if _os(node) == "windows":
        about.insert(1, info.get("kernelVersion", "").removeprefix("10.0."))
    return trace_picture.LaneFacts(_os(node), " · ".join(filter(None, about)))


async def read_endpoints(request: PageRequest) -> TraceEndpoints:
    async def read(plural: str) -> list[Any]:
        query = {"limit": str(MOST_LISTED)}
        found = await request.services.api.get_json(f"/api/v1/{plural}", query)
        return list(found["items"])

    return TraceEndpoints(*await asyncio.gather(*map(read, ("pods", "services", "nodes"))))


async def call_trace(request: PageRequest, query: Mapping[str, str]) -> Any:
    """The answer of /transom/trace; an ApiError has a sentence for other clusters."""
    try:
        return await request.services.api.get_json("/transom/trace", query)
    except ApiError as problem:
        if problem.code == 404:
            raise ApiError(404, "NotFound", _NO_TRACE) from problem
        raise


# ---- path ----


async def show_trace(request: PageRequest) -> Answer:
    origin, target = request.query("from").strip(), request.query("to").strip()
    protocol = request.query("protocol", "tcp")
    endpoints = await read_endpoints(request)
    body: list[Child] = [_head("/trace"), _form(request, origin, target, protocol, endpoints)]
    if origin and target:
        query = {
            "from": origin,
            "to": target,
            "protocol": protocol if protocol in _PROTOCOLS else "tcp",
            "namespace": request.query("namespace") or request.services.namespace or "default",
        }
        try:
            body.append(path_report(await call_trace(request, query), endpoints))
        except ApiError as problem:
            body.append(tag("p", problem.message, role="alert", class_="problem"))
    else:
        body.append(_suggestions(endpoints))
    return page_response(request, PAGE, *body)


def path_report(document: Mapping[str, Any], endpoints: TraceEndpoints) -> Markup:
    """Verdict, picture and table of a trace."""
    picture = (
        trace_picture.path_picture(document, endpoints.pod_nodes(), endpoints.machines())
        if document["hops"]
        else None
    )
    return fragment(
        _verdict(document),
        tag(
            "div",
            tag("button", "◀", type="button", id="step-back", aria_label="Previous hop"),
            tag("button", "▶", type="button", id="step-on", aria_label="Next hop"),
            tag("span", "step through the hops, also with the arrow keys", class_="muted"),
            class_="toolbar stepper",
            hidden=True,
        ),
        scroll_box("Path", picture, class_="picture") if picture else None,
        tag("h2", "Hops"),
        _hop_table(document),
        _reply(document),
    )


def _verdict(document: Mapping[str, Any]) -> Markup:
    lines = report.verdict_lines(dict(document))
    state = {"delivered": "ok", "refused": "warn"}.get(document["verdict"], "bad")
    limit = document["limit"]
    rows: list[Child] = []
    for line in lines[1:]:
        label, _, text = line.partition(":")
        value: Child = text.strip()
        if label == "limit" and limit:
            value = [
                tag("a", limit, href=f"/windows?show={limit}#{limit}"),
                f" {document['title']}",
            ]
        rows.append([tag("dt", label.capitalize()), tag("dd", value)])
    return tag(
        "section",
        tag(
            "p",
            tag("span", document["verdict"], class_=f"badge {state}"),
            " ",
            tag("strong", lines[0].removeprefix("verdict: ").removeprefix(document["verdict"])),
        ),
        tag("dl", rows) if rows else None,
        class_=f"card verdict {state}",
        aria_label="Verdict",
        aria_live="polite",
    )


def _hop_table(document: Mapping[str, Any]) -> Markup:
    head, *rows = report.report_lines(dict(document))
    titles = [title.capitalize() for title in head]
    return scroll_box(
        "Hops",
        tag(
            "table",
            tag("thead", tag("tr", [tag("th", title, scope="col") for title in titles])),
            tag(
                "tbody",
                [
                    tag(
                        "tr",
                        [
                            tag("td", cell, class_="mono fit" if i == len(row) - 1 else None)
                            for i, cell in enumerate(row)
                        ],
                        data_hop=row[0],
                        tabindex="-1",
                    )
                    for row in rows
                ],
            ),
            id="hops",
        ),
    )


def _reply(document: Mapping[str, Any]) -> Markup | None:
    if trace_picture.shows_reply(document) or not document["reply"]:
        return None
    rows = [
        tag(
            "tr",
            tag("td", f"<{number}"),
            tag("td", hop["place"]),
            tag("td", hop["device"]),
            tag("td", hop["what"]),
            tag("td", report.packet_text(hop["packet"]), class_="mono fit"),
        )
        for number, hop in enumerate(document["reply"], 1)
    ]
    return tag(
        "details",
        tag("summary", f"Reply: {len(rows)} hops"),
        scroll_box("Reply", tag("table", tag("tbody", rows))),
    )


def _head(current: str) -> Markup:
    return tabs_heading("Trace", _VIEWS, current)


def _form(
    request: PageRequest, origin: str, target: str, protocol: str, endpoints: TraceEndpoints
) -> Markup:
    def field(name: str, label: str, value: str, hint: str) -> Markup:
        return tag(
            "label",
            label,
            tag(
                "input",
                name=name,
                value=value,
                list="endpoints",
                placeholder=hint,
                required=True,
                autocomplete="off",
                spellcheck="false",
                data_filter=name == "from",
            ),
            class_="field grow",
        )

    return tag(
        "form",
        field("from", "From", origin, "pod/default/web-0"),
        tag("button", "⇄", type="button", id="swap", aria_label="Swap the ends", hidden=True),
        field("to", "To", target, "svc/default/db:80"),
        tag(
            "label",
            "Protocol",
            tag(
                "select",
                [tag("option", p, value=p, selected=p == protocol) for p in _PROTOCOLS],
                name="protocol",
            ),
            class_="field",
        ),
        tag("button", "Trace", type="submit", class_="primary"),
        tag("datalist", [tag("option", value=name) for name in endpoints.names()], id="endpoints"),
        class_="toolbar trace-form",
        method="get",
        action="/trace",
    )


def _suggestions(endpoints: TraceEndpoints) -> Markup:
    """Links to traces that every mixed cluster can show."""
    pods = [f"pod/{_name(p)}" for p in endpoints.pods if p["status"].get("podIP")]
    services = [f"svc/{_name(s)}" for s in endpoints.services if s["metadata"]["name"]]
    windows = [f"node/{name}" for name in endpoints.windows_nodes()]
    wanted = [
        (pods[:1], services[-1:], "from a pod to a service"),
        (windows[:1], services[-1:], "from a Windows node to a service"),
        (pods[:1], ["external"], "from a pod to the Internet"),
        (windows[:1], pods[-1:], "from a Windows node to a pod"),
    ]
    links = [
        tag("li", tag("a", f"{a[0]} → {b[0]}", href=trace_link(a[0], b[0])), f": {text}")
        for a, b, text in wanted
        if a and b
    ]
    return tag(
        "div",
        tag("p", "Choose two ends, or start with one of these:"),
        tag("ul", links),
        tag(
            "p",
            "An end is a pod, a service, a node, a DNS name, an address or external; ",
            "a port follows after a colon.",
            class_="muted",
        ),
        class_="card prose",
    )


def trace_link(origin: str, target: str, protocol: str = "tcp") -> str:
    from_, to = (quote(text) for text in (origin, target))
    return f"/trace?from={from_}&to={to}&protocol={protocol}"


# ---- flows ----


async def show_flows(request: PageRequest) -> Answer:
    found = await call_trace(request, {"matrix": "table"})
    flows = found["flows"]
    tiles = [
        tag(
            "a" if flow["from"] and flow["to"] else "span",
            tag("span", flow["id"], class_="tile-id"),
            tag("span", flow["flow"]),
            tag("span", _works(flow), class_="tile-state"),
            class_=f"tile {_flow_state(flow)}",
            href=trace_link(flow["from"], flow["to"], flow["protocol"])
            if flow["from"] and flow["to"]
            else None,
            title=flow["why"] or "",
        )
        for flow in flows
    ]
    rows = [
        tag(
            "tr",
            tag("td", flow["id"], class_="fit"),
            tag("td", flow["flow"]),
            tag("td", flow["protocol"]),
            tag("td", flow["from"] or "-"),
            tag("td", flow["to"] or "-"),
            tag("td", tag("span", _works(flow), class_=f"badge {_flow_state(flow)}")),
            tag("td", f"{flow['limit']}: " if flow["limit"] else "", flow["why"] or ""),
        )
        for flow in flows
    ]
    titles = ("Point", "Flow", "Protocol", "From", "To", "Works", "Why")
    return page_response(
        request,
        PAGE,
        _head("/trace/flows"),
        tag("h2", found["title"]),
        tag("p", "The flows that the Kubernetes documentation lists. Red ones are limitations."),
        tag("div", tiles, class_="tiles"),
        scroll_box("Flows", _table(titles, rows)),
    )


def _works(flow: Mapping[str, Any]) -> str:
    return {True: "works", False: "fails", None: "not tried"}[flow["works"]]


def _flow_state(flow: Mapping[str, Any]) -> str:
    return {True: "ok", False: "bad", None: ""}[flow["works"]]


def _table(titles: Iterable[str], rows: Iterable[Child]) -> Markup:
    head = tag("thead", tag("tr", [tag("th", title, scope="col") for title in titles]))
    return tag("table", head, tag("tbody", list(rows)))


# ---- heat map ----


async def show_pairs(request: PageRequest) -> Answer:
    """Every end to every other one, for a choice of ends that covers all nodes and systems."""
    endpoints = await read_endpoints(request)
    pods, services = chosen_pods(endpoints), chosen_services(endpoints)
    nodes = [f"node/{name}" for name in _chosen_nodes(endpoints)]
    origins = [*pods, *nodes, "external"]
    targets = [*pods, *services, *nodes, "external"]
    gate = asyncio.Semaphore(_PARALLEL)

    async def trace(origin: str, target: str) -> Any:
        if origin == target:
            return None
        async with gate:
            try:
                return await call_trace(request, {"from": origin, "to": target})
            except ApiError as problem:
                if problem.code != 400:
                    raise
                return {"verdict": "not possible", "explanation": problem.message, "limit": ""}

    results = await asyncio.gather(*(trace(a, b) for a in origins for b in targets))
    rows = [
        tag(
            "tr",
            tag("th", tag("div", _label(origin)), scope="row"),
            [
                _cell(origin, target, results[i * len(targets) + j])
                for j, target in enumerate(targets)
            ],
        )
        for i, origin in enumerate(origins)
    ]
    heads = [
        tag("th", tag("span", _label(target)), scope="col", title=_label(target))
        for target in targets
    ]
    head = tag("tr", tag("td", "from ↓ to →"), heads)
    return page_response(
        request,
        PAGE,
        _head("/trace/pairs"),
        tag(
            "p",
            f"{len(origins)} by {len(targets)} TCP flows, traced just now: one pod per node and ",
            "operating system, services, nodes, and a host outside. A cell opens its trace.",
            class_="muted",
        ),
        scroll_box("Heat map", tag("table", tag("thead", head), tag("tbody", rows), class_="heat")),
        tag(
            "p",
            [
                tag("span", word, class_=f"badge {state}")
                for word, state in (("arrives", "ok"), ("refused", "warn"), ("dropped", "bad"))
            ],
            class_="toolbar",
        ),
    )


def chosen_pods(endpoints: TraceEndpoints) -> list[str]:
    """A running pod of each node, at most five nodes; one that is ready if there is one."""
    first: dict[str, str] = {}
    for pod in sorted(endpoints.pods, key=_is_not_ready):
        node = pod["spec"].get("nodeName", "")
        if pod["status"].get("phase") == "Running" and not pod["spec"].get("hostNetwork"):
            first.setdefault(node, f"pod/{_name(pod)}")
    return list(first.values())[:_MOST_NODES]


def _is_not_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return ("Ready", "True") not in ((one["type"], one["status"]) for one in conditions)


def chosen_services(endpoints: TraceEndpoints) -> list[str]:
    """Services with a selector first: `kubernetes` has none."""
    usable = [s for s in endpoints.services if s["spec"].get("clusterIP") not in (None, "", "None")]
    usable.sort(key=lambda service: not service["spec"].get("selector"))
    return [f"svc/{_name(service)}" for service in usable][:_MOST_NODES]


def _chosen_nodes(endpoints: TraceEndpoints) -> list[str]:
    windows = endpoints.windows_nodes()
    others = [n["metadata"]["name"] for n in endpoints.nodes if _os(n) != "windows"]
    return [*others[:2], *windows[: _MOST_NODES - 2]]


def _label(text: str) -> str:
    kind, _, name = text.partition("/")
    return text if not name else f"{kind} {name.removeprefix('default/')}"


def _cell(origin: str, target: str, found: Mapping[str, Any] | None) -> Markup:
    if found is None:
        return tag("td", tag("span", "same end", class_="visually-hidden"), class_="same")
    verdict = found["verdict"]
    state = {"delivered": "ok", "refused": "warn", "not possible": ""}.get(verdict, "bad")
    mark = {"ok": "✓", "warn": "!", "bad": "✕", "": "–"}[state]
    why = " ".join(filter(None, (found["limit"], found["explanation"])))
    text = f"{_label(origin)} to {_label(target)}: {verdict}" + (f". {why}" if why else "")
    link = tag(
        "a",
        mark,
        tag("span", text, class_="visually-hidden"),
        tag("span", found["limit"] or "", class_="heat-limit"),
        href=trace_link(origin, target),
        title=text,
    )
    return tag("td", link, class_=f"cell {state}".strip())


# ---- HNS ----


async def show_hns(request: PageRequest) -> Answer:
    endpoints = await read_endpoints(request)
    nodes = endpoints.windows_nodes()
    node = request.query("node") or (nodes[0] if nodes else "")
    body: list[Child] = [_head("/trace/hns")]
    if node not in nodes:
        text = f"There is no Windows node {node}." if node else "There is no Windows node."
        return page_response(request, PAGE, *body, tag("p", text, class_="notice"))
    tabs = [
        tag(
            "a",
            name,
            href=f"/trace/hns?node={quote(name)}",
            class_="button",
            aria_current="page" if name == node else None,
        )
        for name in nodes
    ]
    lists = await asyncio.gather(
        *(
            request.services.api.get_json(f"/transom/nodes/{node}/hns/{kind}")
            for kind in hns_tree.KINDS
        )
    )
    state = {kind: found["items"] for kind, found in zip(hns_tree.KINDS, lists, strict=True)}
    return page_response(
        request,
        PAGE,
        *body,
        tag("div", tabs, class_="tabs"),
        tag("p", f"Host networking service {lists[0]['version']} of {node}.", class_="muted"),
        hns_tree.render_hns_tree(state, endpoints.pod_addresses()),
        title=f"HNS of {node}",
    )


PAGE = Page(
    "trace",
    "Trace",
    "/trace",
    (
        Route("GET", "/trace", show_trace),
        Route("GET", "/trace/flows", show_flows),
        Route("GET", "/trace/pairs", show_pairs),
        Route("GET", "/trace/hns", show_hns),
    ),
)
