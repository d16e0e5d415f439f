"""How Windows plugins talk to the host networking service: lookups by name, calls of both schemas, hcsshim's error texts.

A failure is `Failed` with the text that a Go plugin would have; `annotate` puts words in front of it, as the plugins do on
the way up, and `told` makes the answer of the plugin of it. Nothing here knows a certain plugin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from transom.hosts.windows.hns import HnsError
from transom.network.cni.plugin import INTERNAL, Call, CniError, Delegate, Machine, Result

if TYPE_CHECKING:
    from transom.hosts.windows.hns import Hns

V1: Final[Mapping[str, str]] = {"network": "/networks/", "endpoint": "/endpoints/"}
PAUSE: Final = "none"  # CNI_NETNS of a sandbox with docker
# What runtimes show of a Go program that has dereferenced a nil pointer.
_PANIC: Final = 'netplugin failed: "panic: runtime error: invalid memory address or nil pointer dereference"'


class Failed(Exception):
    """An error of a plugin on its way to the answer."""


class Crashed(CniError):
    """A plugin that has ended without an answer, and has put nothing in order before."""


@contextmanager
def annotate(words: str) -> Iterator[None]:
    try:
        yield
    except Failed as error:
        raise Failed(f"{words}: {error}") from error


@contextmanager
def told(code: int = INTERNAL, words: str = "") -> Iterator[None]:
    """What fails within is the plugin's answer."""
    try:
        yield
    except Failed as error:
        raise CniError(code, f"{words}: {error}" if words else str(error)) from error


def crash(cause: Exception) -> NoReturn:
    """The plugin goes on with nothing where it should stop, and ends. The cause, which nobody sees on Windows, is told too."""
    raise Crashed(INTERNAL, _PANIC, str(cause)) from cause


def service(machine: Machine) -> Hns:
    if machine.hns is None:
        raise Failed("The specified module could not be found.")
    return machine.hns


# ---- configuration: Go reads keys whatever their case ---------------------------------------------------------------


def value(config: Mapping[str, Any], name: str, default: Any = None) -> Any:
    found = config.get(name)
    if found is None:
        lower = name.lower()
        found = next((v for k, v in config.items() if v is not None and k.lower() == lower), None)
    return default if found is None else found


def ipam_type(call: Call) -> str:
    return str(value(value(call.config, "ipam", {}), "type", ""))


def run_ipam(delegate: Delegate, call: Call, kind: str) -> Result | None:
    """The IPAM plugin's result, or its error as one of ours."""
    try:
        return delegate(kind, call)
    except CniError as error:
        raise Failed(str(error)) from error


def give_back(delegate: Delegate, call: Call) -> None:
    """What the IPAM plugin gave to a call that failed. The answer is the first error, so this one is nobody's."""
    kind = ipam_type(call)
    if kind:
        with suppress(CniError):
            delegate(kind, replace(call, command="DEL"))


# ---- version 1 ------------------------------------------------------------------------------------------------------


def v1(hns: Hns, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    try:
        answer = hns.call(method, path, body)
    except HnsError as error:
        raise Failed(f"failed during hnsCallRawResponse: {error.text}") from error
    if not answer["Success"]:
        raise Failed(f"hns failed with error : {answer.get('Error', '')}")
    return answer.get("Output")


def v1_network(hns: Hns, name: str) -> dict[str, Any] | None:
    found = named(hns.networks, name)
    if found is None:
        return None
    network: dict[str, Any] = v1(hns, "GET", f"/networks/{found['ID']}")
    return network


def v1_endpoint(hns: Hns, name: str) -> dict[str, Any] | None:
    found = named(hns.endpoints, name)
    if found is None:
        return None
    endpoint: dict[str, Any] = v1(hns, "GET", f"/endpoints/{found['ID']}")
    return endpoint


def v1_create(hns: Hns, body: Mapping[str, Any]) -> dict[str, Any]:
    """An endpoint. Go leaves out what is empty."""
    endpoint: dict[str, Any] = v1(hns, "POST", "/endpoints/", {k: v for k, v in body.items() if v not in ("", None, [], 0)})
    return endpoint


def hot_attach(hns: Hns, container_id: str, endpoint_id: str) -> None:
    try:
        hns.hot_attach(endpoint_id, container_id)
    except HnsError as error:
        raise Failed(error.text) from error


# ---- version 2 ------------------------------------------------------------------------------------------------------


def named(objects: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((found for found in objects.values() if found.get("Name") == name), None)


def v2_create(hns: Hns, kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    try:
        return hns.create(kind, settings)
    except HnsError as error:
        raise Failed(error.text) from error


def v2_delete(hns: Hns, kind: str, id: str) -> None:
    try:
        hns.delete(kind, id)
    except HnsError as error:
        raise Failed(error.text) from error


def join_namespace(hns: Hns, namespace: str, endpoint_id: str) -> None:
    try:
        hns.add_to_namespace(namespace, endpoint_id)
    except HnsError as error:
        raise Failed(error.text) from error


def same_id(one: str, other: str) -> bool:
    return one.upper() == other.upper()


def subnet_of(network: Mapping[str, Any]) -> dict[str, Any]:
    """The first subnet of a network in the schema of version 2."""
    for ipam in network.get("Ipams") or ():
        for subnet in ipam.get("Subnets") or ():
            return dict(subnet)
    return {}


def gateway_of(subnet: Mapping[str, Any]) -> str:
    """The next hop of a subnet's default route."""
    for route in subnet.get("Routes") or ():
        if route.get("DestinationPrefix") in ("0.0.0.0/0", "::/0"):
            return str(route.get("NextHop", ""))
    return ""
