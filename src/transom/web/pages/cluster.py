"""The Cluster page: nodes as boxes by operating system and build, pods in them as tiles, services as
lines, doctor's findings; live. `static/cluster.js` draws it from the rows of `ClusterFeed`.
"""

from __future__ import annotations

from typing import Final

from transom.http.messages import Answer
from transom.web.layout import page_response
from transom.web.markup import tag
from transom.web.responses import event_response
from transom.web.routing import Page, PageRequest, Route

# The states of a tile (cluster_rows.pod_state) in the order of the legend
_LEGEND: Final = (
    ("running", "Running"),
    ("unready", "Not ready"),
    ("starting", "Starting"),
    ("problem", "Problem"),
    ("ending", "Terminating"),
    ("done", "Completed"),
)


async def show_cluster(request: PageRequest) -> Answer:
    legend = tag(
        "ul",
        [
            tag(
                "li",
                tag("span", class_=f"swatch state-{state}"),
                text,
                tag("b", "", data_count=state),
            )
            for state, text in _LEGEND
        ],
        class_="legend",
        aria_label="States of pods",
    )
    toolbar = tag(
        "div",
        tag("h1", request.services.cluster),
        tag("span", "connecting", id="live", class_="live", role="status"),
        tag("span", class_="grow"),
        tag("label", "Filter", for_="filter", class_="visually-hidden"),
        tag(
            "input",
            id="filter",
            type="search",
            placeholder="Filter: name, namespace, node, state",
            data_filter=True,
        ),
        tag(
            "div",
            tag("button", "Picture", type="button", id="show-picture", aria_pressed="true"),
            tag("button", "Table", type="button", id="show-table", aria_pressed="false"),
            class_="switch",
            role="group",
            aria_label="View",
        ),
        class_="toolbar",
    )
    picture = tag(
        "div",
        tag(
            "canvas",
            id="picture",
            tabindex="0",
            role="application",
            aria_roledescription="cluster picture",
            aria_describedby="picture-help",
            aria_label="Nodes and pods",
        ),
        tag("div", id="tip", role="status", hidden=True),
        tag(
            "div",
            tag("button", "+", type="button", id="zoom-in", aria_label="Zoom in"),
            tag("button", "−", type="button", id="zoom-out", aria_label="Zoom out"),
            tag("button", "Fit", type="button", id="zoom-fit"),
            class_="zoom",
        ),
        tag(
            "p",
            "Arrow keys select a node or pod, Enter opens it, + and - zoom, 0 fits. ",
            "The Table button shows the same as a table.",
            id="picture-help",
            class_="visually-hidden",
        ),
        id="picture-box",
        class_="picture",
    )
    problems = tag(
        "aside",
        tag("h2", "Problems ", tag("span", "not checked yet", id="problem-count", class_="badge")),
        tag("div", id="problems", class_="findings"),
        tag("div", id="states"),
        aria_label="Problems",
        class_="side",
    )
    table = tag("div", id="table-box", hidden=True)
    return page_response(
        request,
        PAGE,
        toolbar,
        legend,
        tag("div", tag("div", picture, table, class_="view"), problems, class_="cluster"),
    )


async def cluster_events(request: PageRequest) -> Answer:
    return event_response(request, request.services.feed.follow)


PAGE = Page(
    "cluster",
    "Cluster",
    "/cluster",
    (
        Route("GET", "/cluster", show_cluster),
        Route("GET", "/cluster/events", cluster_events),
    ),
)
