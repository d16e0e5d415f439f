"""The state of a Windows node's host networking service (HNS) as a tree of HTML.

Networks with their endpoints and policies, load balancers with their backends, then the rest. The
documents are those of `transom hns NODE VERB --output json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from transom.web.markup import Child, Markup, tag
from transom.windows.hns_wording import (
    PROTOCOLS,
    balancer_flags,
    endpoint_addresses,
    endpoint_state,
)

KINDS: Final = (
    "networks",
    "endpoints",
    "loadbalancers",
    "namespaces",
    "routes",
    "adapters",
    "faults",
)
_MOST: Final = 200  # of one list

HnsState = Mapping[str, Sequence[Mapping[str, Any]]]


def render_hns_tree(state: HnsState, pod_addresses: Mapping[str, str]) -> Markup:
    endpoints = {endpoint["ID"]: endpoint for endpoint in state["endpoints"]}
    faults = [fault["Name"] for fault in state["faults"] if fault["On"]]
    sections = [
        _section("Networks", state["networks"], lambda n: _network(n, state, pod_addresses), True),
        _section(
            "Load balancers",
            state["loadbalancers"],
            lambda b: _balancer(b, endpoints, pod_addresses),
            True,
        ),
        _section("Namespaces", state["namespaces"], _namespace),
        _section("Routes", state["routes"], _route),
        _section("Adapters", state["adapters"], _adapter),
    ]
    return tag(
        "div",
        tag("p", f"Faults on: {', '.join(faults)}", class_="notice") if faults else None,
        sections,
        class_="tree",
    )


def _section(
    title: str,
    items: Sequence[Mapping[str, Any]],
    render: Any,
    opened: bool = False,
) -> Markup:
    shown = [render(item) for item in items[:_MOST]]
    rest = len(items) - len(shown)
    return tag(
        "details",
        tag("summary", tag("strong", title), f" ({len(items)})"),
        tag("ul", [tag("li", one) for one in shown]) if shown else tag("p", "none", class_="muted"),
        tag("p", f"and {rest} more", class_="muted") if rest else None,
        open=opened,
        class_="tree-section",
    )


def _entry(title: Child, facts: Sequence[str], document: Any, *inner: Child) -> Markup:
    """One object: a line, what is below it, and its document."""
    return tag(
        "details",
        tag(
            "summary",
            title,
            " ",
            tag("span", " · ".join(fact for fact in facts if fact), class_="muted"),
        ),
        inner,
        tag(
            "details",
            tag("summary", "document", class_="muted"),
            tag(
                "pre",
                orjson.dumps(document, option=orjson.OPT_INDENT_2).decode(),
                tabindex="0",
                role="region",
                aria_label="Document of HNS",
            ),
        ),
    )


def _network(
    network: Mapping[str, Any], state: HnsState, pod_addresses: Mapping[str, str]
) -> Markup:
    own = [e for e in state["endpoints"] if e.get("VirtualNetwork") == network["ID"]]
    subnets = ", ".join(subnet["AddressPrefix"] for subnet in network["Subnets"])
    facts = [network["Type"], subnets, f"management {network.get('ManagementIP', '-')}"]
    rows = [tag("li", _endpoint(one, pod_addresses)) for one in own[:_MOST]]
    more = len(own) - len(rows)
    return tag(
        "details",
        tag(
            "summary",
            tag("strong", network["Name"]),
            " ",
            tag("span", " · ".join(facts), class_="muted"),
        ),
        tag("ul", rows),
        tag("p", f"and {more} more endpoints", class_="muted") if more else None,
        open=True,
    )


def _endpoint(endpoint: Mapping[str, Any], pod_addresses: Mapping[str, str]) -> Markup:
    address = endpoint.get("IPAddress", "")
    policies = endpoint.get("Policies", ())
    facts = [
        endpoint_addresses(endpoint),
        endpoint_state(endpoint),
        _count(len(policies), "policy", "policies"),
    ]
    whose = endpoint.get("AttachedTo")
    if whose and whose["Type"] == "host":
        facts.append("the node's own")
    rows = [
        tag(
            "li",
            tag("span", str(policy.get("Type", "policy")), class_="badge"),
            " ",
            tag("code", _settings(policy)),
        )
        for policy in policies[:_MOST]
    ]
    pod = pod_addresses.get(address, "") if endpoint_state(endpoint) != "remote" else ""
    title: Child = f"pod {pod}" if pod else endpoint["Name"]
    return _entry(title, facts, endpoint, tag("ul", rows) if rows else None)


def _settings(policy: Mapping[str, Any]) -> str:
    return orjson.dumps({k: v for k, v in policy.items() if k != "Type"}).decode()


def _balancer(
    balancer: Mapping[str, Any],
    endpoints: Mapping[str, Mapping[str, Any]],
    pod_addresses: Mapping[str, str],
) -> Markup:
    front = ",".join(balancer.get("FrontendVIPs", ())) or "*"
    ports = [
        f"{PROTOCOLS.get(m['Protocol'], m['Protocol'])} {m['ExternalPort']} → {m['InternalPort']}"
        for m in balancer["PortMappings"]
    ]
    flags = [flag for m in balancer["PortMappings"] for flag in balancer_flags(balancer, m)]
    backends = []
    for key in balancer["HostComputeEndpoints"][:_MOST]:
        address = endpoints.get(key, {}).get("IPAddress", key)
        pod = pod_addresses.get(address, "")
        backends.append(tag("li", address, " ", tag("span", pod, class_="muted")))
    facts = [
        ", ".join(ports),
        _count(len(balancer["HostComputeEndpoints"]), "backend", "backends"),
        *flags,
    ]
    return _entry(tag("strong", front), facts, balancer, tag("ul", backends))


def _namespace(namespace: Mapping[str, Any]) -> Markup:
    return _entry(
        namespace["ID"],
        [namespace["Type"], f"compartment {namespace['NamespaceId']}"],
        namespace,
    )


def _route(route: Mapping[str, Any]) -> Markup:
    ways = [
        f"{setting['DestinationPrefix']} via {setting.get('NextHop') or '-'}"
        for setting in route["Setting"]
    ]
    return _entry(", ".join(ways) or route["ID"], [], route)


def _adapter(adapter: Mapping[str, Any]) -> Markup:
    return _entry(adapter["name"], [adapter["kind"], adapter["address"], adapter["mac"]], adapter)


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
