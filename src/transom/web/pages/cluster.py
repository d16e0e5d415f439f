"""The Cluster page: nodes as boxes, pods in them as tiles, live."""

from __future__ import annotations

from transom.client.resources import NODES
from transom.http.messages import Answer
from transom.web.layout import page_response
from transom.web.markup import tag
from transom.web.routing import Page, PageRequest, Route


async def show_cluster(request: PageRequest) -> Answer:
    nodes = (await request.services.client.list(NODES)).items
    rows = [
        tag(
            "tr",
            tag("td", node["metadata"]["name"]),
            tag("td", node["status"]["nodeInfo"]["osImage"]),
        )
        for node in nodes
    ]
    head = tag("thead", tag("tr", tag("th", "Node"), tag("th", "Operating system")))
    table = tag("table", head, tag("tbody", rows))
    return page_response(request, PAGE, tag("h1", "Cluster"), tag("div", table, class_="scroll"))


PAGE = Page("cluster", "Cluster", "/cluster", (Route("GET", "/cluster", show_cluster),))
