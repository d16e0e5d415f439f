"""How Windows plugins call the host networking service: lookups by name, calls of both schemas,
hcsshim's error texts.

A failure is `HcsshimFailed` with the text of a Go plugin; `annotate_errors` adds a prefix to it, as
the plugins do, and `plugin_errors` converts it to the plugin's response. This module depends on no
specific plugin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from transom.machines.windows.hns import HnsError
from transom.network.cni.plugin import INTERNAL, CniCall, CniError, CniNode, Delegate, Result

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

V1: Final[Mapping[str, str]] = {"network": "/networks/", "endpoint": "/endpoints/"}
PAUSE: Final = "none"  # CNI_NETNS of a sandbox with docker
# What runtimes show of a Go program that has dereferenced a nil pointer.
_PANIC: Final = (
    'netplugin failed: "panic: runtime error: invalid memory address or nil pointer dereference"'
)


class HcsshimFailed(Exception):
    """An error of a plugin before it becomes the response."""


class HcsshimCrashed(CniError):
    """A plugin that has crashed without a response or cleanup."""


@contextmanager
def annotate_errors(words: str) -> Iterator[None]:
    try:
        yield
    except HcsshimFailed as error:
        raise HcsshimFailed(f"{words}: {error}") from error


@contextmanager
def plugin_errors(code: int = INTERNAL, words: str = "") -> Iterator[None]:
    """Converts failures in the block to the plugin's response."""
    try:
        yield
    except HcsshimFailed as error:
        raise CniError(code, f"{words}: {error}" if words else str(error)) from error


def crash_plugin(cause: Exception) -> NoReturn:
    """The plugin continues with a nil value after an error, and crashes. The cause, which is
    invisible on Windows, is reported too.
    """
    raise HcsshimCrashed(INTERNAL, _PANIC, str(cause)) from cause


def hns_of_machine(machine: CniNode) -> HostNetworkService:
    if machine.hns is None:
        raise HcsshimFailed("The specified module could not be found.")
    return machine.hns


# ---- configuration: Go ignores the case of keys ----


def config_value(config: Mapping[str, Any], name: str, default: Any = None) -> Any:
    found = config.get(name)
    if found is None:
        lower = name.lower()
        found = next((v for k, v in config.items() if v is not None and k.lower() == lower), None)
    return default if found is None else found


def ipam_type(call: CniCall) -> str:
    return str(config_value(config_value(call.config, "ipam", {}), "type", ""))


def run_ipam(delegate: Delegate, call: CniCall, kind: str) -> Result | None:
    """The IPAM plugin's result, or its error as HcsshimFailed."""
    try:
        return delegate(kind, call)
    except CniError as error:
        raise HcsshimFailed(str(error)) from error


def give_back(delegate: Delegate, call: CniCall) -> None:
    """Releases what the IPAM plugin assigned in a failed call. The caller reports the first error,
    so errors here are dropped.
    """
    kind = ipam_type(call)
    if kind:
        with suppress(CniError):
            delegate(kind, replace(call, command="DEL"))


# ---- version 1 ----


def v1(
    hns: HostNetworkService, method: str, path: str, body: Mapping[str, Any] | None = None
) -> Any:
    try:
        answer = hns.call(method, path, body)
    except HnsError as error:
        raise HcsshimFailed(f"failed during hnsCallRawResponse: {error.text}") from error
    if not answer["Success"]:
        raise HcsshimFailed(f"hns failed with error : {answer.get('Error', '')}")
    return answer.get("Output")


def v1_network(hns: HostNetworkService, name: str) -> dict[str, Any] | None:
    found = find_by_name(hns.networks, name)
    if found is None:
        return None
    network: dict[str, Any] = v1(hns, "GET", f"/networks/{found['ID']}")
    return network


def v1_endpoint(hns: HostNetworkService, name: str) -> dict[str, Any] | None:
    found = find_by_name(hns.endpoints, name)
    if found is None:
        return None
    endpoint: dict[str, Any] = v1(hns, "GET", f"/endpoints/{found['ID']}")
    return endpoint


def v1_create(hns: HostNetworkService, body: Mapping[str, Any]) -> dict[str, Any]:
    """Creates an endpoint. Go omits empty fields."""
    endpoint: dict[str, Any] = v1(
        hns, "POST", "/endpoints/", {k: v for k, v in body.items() if v not in ("", None, [], 0)}
    )
    return endpoint


def hot_attach(hns: HostNetworkService, container_id: str, endpoint_id: str) -> None:
    try:
        hns.hot_attach(endpoint_id, container_id)
    except HnsError as error:
        raise HcsshimFailed(error.text) from error


# ---- version 2 ----


def find_by_name(objects: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((found for found in objects.values() if found.get("Name") == name), None)


def v2_create(hns: HostNetworkService, kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    try:
        return hns.create(kind, settings)
    except HnsError as error:
        raise HcsshimFailed(error.text) from error


def v2_delete(hns: HostNetworkService, kind: str, id: str) -> None:
    try:
        hns.delete(kind, id)
    except HnsError as error:
        raise HcsshimFailed(error.text) from error


def join_namespace(hns: HostNetworkService, namespace: str, endpoint_id: str) -> None:
    try:
        hns.add_to_namespace(namespace, endpoint_id)
    except HnsError as error:
        raise HcsshimFailed(error.text) from error


def same_id(one: str, other: str) -> bool:
    return one.upper() == other.upper()


def subnet_of(network: Mapping[str, Any]) -> dict[str, Any]:
    """The first subnet of a network in the version 2 schema."""
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
