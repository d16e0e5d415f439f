"""Disabling and enabling the network adapters of a Windows system."""

from __future__ import annotations

from transom.network.stacks import NetworkRoute
from transom.userland.network_view import NetworkInterface, NetworkView

_DEFAULTS = ("0.0.0.0/0", "::/0")


def _link(view: NetworkView, interface: NetworkInterface) -> str:
    """A card under a virtual switch carries the traffic of the machine's own adapter."""
    if not interface.under_switch:
        return view.link_of(interface)
    return next((one.name for one in view.stack.links.values() if one.kind == "ethernet"), "")


def set_adapter_state(view: NetworkView, interface: NetworkInterface, *, up: bool) -> None:
    """An adapter that is enabled again gets its configured gateway back."""
    link = _link(view, interface)
    adapters = view.hns.adapters if view.hns is not None else {}
    own = adapters.get(interface.name)
    if own is not None:
        own.disabled = not up
    if not link:
        return
    below = adapters[link].below if link in adapters else ""
    others = [adapters[name] for name in (link, below) if name in adapters]
    wanted = up and not any(adapter.disabled for adapter in others)
    gateways = [r.via for r in view.stack.routes() if r.link == link and r.via and _is_default(r)]
    view.stack.set_link_state(link, up=wanted)
    if wanted:
        known = gateways or [adapter.gateway for adapter in others if adapter.gateway]
        for gateway in known:
            view.stack.replace_route(_DEFAULTS[":" in gateway], link, gateway)


def _is_default(route: NetworkRoute) -> bool:
    return str(route.destination) in _DEFAULTS


def set_adapter_mtu(view: NetworkView, interface: NetworkInterface, mtu: int) -> None:
    link = _link(view, interface)
    if link:
        view.stack.links[link].mtu = mtu
        view.stack.changed_link(link)
