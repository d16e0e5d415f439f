"""Faults of nodes as switches: the verbs of `transom node` and `transom hns` that break something.

One table lists the faults of every node; the host networking service of a Windows node lists its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from transom.machinery.errors import ApiError
from transom.web.api_access import ApiAccess
from transom.web.markup import Child, Markup, fragment, tag
from transom.web.routing import PageRequest

_MOST_NODES: Final = 40
_PROXY: Final = "http://proxy.example.com:80/"
_HNS: Final = "hns-"
HNS_ABOUT: Final[Mapping[str, str]] = {
    "keep-remote-endpoints": "endpoints of deleted pods of other nodes remain",
    "lose-balancers-on-restart": "a restart of the service removes all load balancers",
    "late-management-address": "networks do not report the node's address; a new flanneld exits",
    "leak-endpoints": "deleted endpoints remain; the next pod with the address fails",
    "refuse-deletes": "every delete is rejected: Access is denied",
    "lose-networks-on-reboot": "a reboot removes persistent networks too",
    "lose-networks-on-restart": "a restart of the service removes all networks",
}


class NodeFault(NamedTuple):
    """`state` reads it from a node of /transom/nodes and its API object; `call` changes it."""

    id: str
    title: str
    about: str
    windows_only: bool
    state: Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
    call: Callable[[bool], tuple[str, str, Any]]  # method, path below the node, body


FAULTS: Final = (
    NodeFault(
        "power",
        "Power loss",
        "the machine stops; its node is NotReady after 40 s, pods are evicted after 5 minutes",
        False,
        lambda machine, node: machine["state"] == "stopped",
        lambda on: ("POST", "stop" if on else "start", None),
    ),
    NodeFault(
        "cordon",
        "Cordon",
        "no new pods are scheduled to it",
        False,
        lambda machine, node: bool(node.get("spec", {}).get("unschedulable")),
        lambda on: ("PATCH", "", {"spec": {"unschedulable": on or None}}),
    ),
    NodeFault(
        "mac-spoofing",
        "MAC spoofing off",
        "the host of the virtual machine drops the packets of its pods",
        True,
        lambda machine, node: machine["macSpoofing"] is False,
        lambda on: ("POST", "set", {"macSpoofing": not on}),
    ),
    NodeFault(
        "proxy",
        "Behind a proxy",
        "registries cannot be reached without the machine's HTTPS_PROXY",
        True,
        lambda machine, node: bool(machine["proxy"]),
        lambda on: ("POST", "set", {"proxy": _PROXY if on else ""}),
    ),
)


async def switch_fault(api: ApiAccess, node: str, fault: str, on: bool) -> None:
    """Turns a fault of a node on or off, as `transom node` and `transom hns` do."""
    if not node or "/" in node:
        raise ApiError(400, "BadRequest", "node is required")
    root = f"/transom/nodes/{node}"
    if fault.startswith(_HNS):
        name = fault.removeprefix(_HNS)
        if name not in HNS_ABOUT:
            raise ApiError(400, "BadRequest", f"there is no fault {name!r}")
        (await api.request("POST", f"{root}/hns/faults/{name}/{'on' if on else 'off'}")).json()
        return
    if fault == "reboot":
        (await api.request("POST", f"{root}/reboot")).json()
        return
    known = next((one for one in FAULTS if one.id == fault), None)
    if known is None:
        raise ApiError(400, "BadRequest", f"there is no fault {fault!r}")
    method, path, body = known.call(on)
    if method == "PATCH":
        answer = await api.request(
            "PATCH",
            f"/api/v1/nodes/{node}",
            body=orjson.dumps(body),
            media_type="application/merge-patch+json",
        )
    else:
        data = orjson.dumps(body) if body is not None else b""
        answer = await api.request(method, f"{root}/{path}", body=data)
    answer.json()


async def render_faults(request: PageRequest) -> Markup:
    api = request.services.api
    try:
        found = (await api.get_json("/transom/nodes"))["items"]
    except ApiError as problem:
        if problem.code != 404:
            raise
        return tag("p", "Only clusters of `transom up` have faults to switch.", class_="notice")
    nodes = (await api.get_json("/api/v1/nodes", {"limit": "500"}))["items"]
    objects = {node["metadata"]["name"]: node for node in nodes}
    machines = [machine for machine in found if not machine["problem"]]
    shown = machines[:_MOST_NODES]
    hns = await asyncio.gather(*(_hns_faults(api, machine) for machine in shown))
    cards = [
        _card(request, machine, objects.get(machine["name"], {}), own)
        for machine, own in zip(shown, hns, strict=True)
    ]
    return fragment(
        tag(
            "p",
            "Switch a fault on and look at Cluster, Trace and the timeline. The same as ",
            tag("code", "transom node stop"),
            ", ",
            tag("code", "transom node set"),
            " and ",
            tag("code", "transom hns NODE fault"),
            ".",
            class_="muted",
        ),
        tag("div", cards, class_="fault-cards"),
        tag("p", f"{len(machines) - len(shown)} more nodes", class_="muted")
        if len(machines) > len(shown)
        else None,
    )


async def _hns_faults(api: ApiAccess, machine: Mapping[str, Any]) -> list[Any]:
    if machine["os"] != "windows":
        return []
    return list((await api.get_json(f"/transom/nodes/{machine['name']}/hns/faults"))["items"])


def _card(
    request: PageRequest, machine: Mapping[str, Any], node: Mapping[str, Any], hns: list[Any]
) -> Markup:
    name, windows = machine["name"], machine["os"] == "windows"
    switches: list[Child] = [
        _switch(request, name, one.id, one.title, one.about, one.state(machine, node))
        for one in FAULTS
        if windows or not one.windows_only
    ]
    switches += [
        _switch(
            request,
            name,
            _HNS + one["Name"],
            f"HNS: {one['Name']}",
            HNS_ABOUT.get(one["Name"], ""),
            one["On"],
        )
        for one in hns
    ]
    build = f" {machine['build']}" if machine["build"] else ""
    state = "ok" if machine["ready"] else "bad"
    text = "Ready" if machine["ready"] else machine["state"]
    return tag(
        "section",
        tag(
            "h2",
            name,
            " ",
            tag("span", f"{machine['os']}{build}", class_=f"badge {machine['os']}"),
            " ",
            tag("span", text, class_=f"badge {state}"),
        ),
        tag("ul", switches, class_="switches"),
        tag(
            "form",
            _hidden(request, name, "reboot", True),
            tag("button", "Reboot", type="submit"),
            method="post",
            action="/why/faults",
        ),
        class_="card",
        id=quote(name),
    )


def _switch(
    request: PageRequest, node: str, fault: str, title: str, about: str, on: bool
) -> Markup:
    button = tag(
        "button",
        tag("span", class_="switch-track"),
        tag("span", tag("strong", title), tag("span", about, class_="muted")),
        type="submit",
        role="switch",
        aria_checked="true" if on else "false",
        class_="switch",
    )
    form = tag(
        "form", _hidden(request, node, fault, not on), button, method="post", action="/why/faults"
    )
    return tag("li", form)


def _hidden(request: PageRequest, node: str, fault: str, on: bool) -> list[Markup]:
    values = {
        "csrf": request.session.csrf,
        "node": node,
        "fault": fault,
        "on": "true" if on else "false",
    }
    return [tag("input", type="hidden", name=key, value=value) for key, value in values.items()]
