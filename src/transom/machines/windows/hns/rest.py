"""v1 requests: methods and paths, for the same objects."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from transom.machines.windows.hns import balancers, endpoints, errors, namespaces, networks, v1
from transom.machines.windows.hns.errors import HnsError
from transom.machines.windows.hns.names import guid
from transom.machines.windows.hns.store import HnsStore, Object

_FIRST_WITH_VERSION: Final = (7, 2)  # older services do not report it
_KINDS: Final = {"networks": "network", "endpoints": "endpoint", "namespaces": "namespace"}
_TITLES: Final = {
    "network": "Network",
    "endpoint": "Endpoint",
    "namespace": "Namespace",
    "loadbalancer": "LoadBalancer",
    "route": "Route",
}


class RestService(Protocol):
    """The service, as its v1 requests see it."""

    @property
    def store(self) -> HnsStore: ...
    @property
    def version(self) -> tuple[int, int]: ...
    def guarded(self, name: str, *, v1: bool = False) -> AbstractContextManager[None]: ...
    def remove(self, kind: str, key: str) -> None: ...
    def stats(self, endpoint_id: str) -> dict[str, Any]: ...
    def management_ip(self, network_id: str) -> str: ...


def call_hns(
    hns: RestService, method: str, path: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    try:
        output = _answer(
            hns, method.upper(), [part for part in path.split("/") if part], dict(body or {})
        )
    except HnsError as error:
        return {
            "Success": False,
            "Error": error.message,
            "ErrorCode": error.code or errors.BAD_PARAMETER,
        }
    return {"Success": True} if output is None else {"Success": True, "Output": output}


def _answer(hns: RestService, method: str, parts: list[str], body: Object) -> Any:
    match method, parts:
        case "GET", ["globals", "version"]:
            if hns.version < _FIRST_WITH_VERSION:
                raise HnsError(errors.ELEMENT_NOT_FOUND)
            return {"Major": hns.version[0], "Minor": hns.version[1]}
        case "GET", ["endpointstats", key]:
            return hns.stats(key)
        case _, ["policylists", *rest]:
            return _answer_policylists(hns, method, rest, body)
        case "GET", ["networks" | "endpoints" | "namespaces" as path]:
            kind = _KINDS[path]
            return [hns_view(hns, kind, key) for key in hns.store.objects[kind]]
        case "POST", ["networks"]:
            settings, extra = v1.network_settings(body)
            with hns.guarded("CreateNetwork", v1=True):
                made = networks.create_hns_network(hns.store, settings, extra)
            return hns_view(hns, "network", made["ID"])
        case "POST", ["endpoints"]:
            return _create_endpoint(hns, body)
        case "POST", ["namespaces"]:
            with hns.guarded("CreateNamespace", v1=True):
                made = namespaces.create_hns_namespace(
                    hns.store, {"Type": "HostDefault" if body.get("IsDefault") else "Host"}
                )
            return hns_view(hns, "namespace", made["ID"])
        case "GET" | "DELETE", ["networks" | "endpoints" | "namespaces" as path, key]:
            return _one(hns, method, _KINDS[path], key)
        case "POST", ["networks", key]:
            return _update_network(hns, _find(hns, "network", key), body)
        case "POST", ["endpoints", key]:
            return _update_endpoint(hns, _find(hns, "endpoint", key), body)
        case "POST", ["endpoints", key, "attach" | "detach" as verb]:
            _attachment(hns, _find(hns, "endpoint", key), verb, body)
            return None
        case "POST", ["namespaces", key, "addresource" | "removeresource" as verb]:
            return _resource(hns, _find(hns, "namespace", key), verb, body)
    raise HnsError(errors.REQUEST_UNSUPPORTED)


def _answer_policylists(hns: RestService, method: str, parts: list[str], body: Object) -> Any:
    match method, parts:
        case "GET", []:
            return [
                hns_view(hns, kind, key)
                for kind in ("loadbalancer", "route")
                for key in hns.store.objects[kind]
            ]
        case "POST", []:
            return _create_policylist(hns, body)
        case "GET" | "DELETE", [key]:
            kind = "route" if guid(key) in hns.store.objects["route"] else "loadbalancer"
            return _one(hns, method, kind, key)
    raise HnsError(errors.REQUEST_UNSUPPORTED)


def hns_view(hns: RestService, kind: str, key: str) -> Object:
    """An object in the v1 schema."""
    store = hns.store
    obj = store.objects[kind][key]
    match kind:
        case "network":
            return v1.network_view(
                obj, store.network_records[key], hns.management_ip(key), hns.version
            )
        case "endpoint":
            record = store.endpoint_records[key]
            above = store.objects["network"][record.network]
            return v1.endpoint_view(
                obj, record, above, store.network_records[record.network].type, hns.version
            )
        case "namespace":
            return v1.namespace_view(obj)
        case "loadbalancer":
            return v1.balancer_view(obj, hns.version)
    return v1.route_view(obj, hns.version)


def _find(hns: RestService, kind: str, identifier: str) -> str:
    key = guid(identifier)
    if not key:
        raise HnsError(errors.BAD_GUID)
    return hns.store.find(kind, key)


def _one(hns: RestService, method: str, kind: str, identifier: str) -> Object | None:
    if method == "GET":
        return hns_view(hns, kind, _find(hns, kind, identifier))
    with hns.guarded(f"Delete{_TITLES[kind]}", v1=True):
        hns.remove(kind, _find(hns, kind, identifier))
    return None


def _create_endpoint(hns: RestService, body: Object) -> Object:
    settings, extra = v1.endpoint_settings(body)
    if body.get("VirtualNetwork"):
        network = _find(hns, "network", body["VirtualNetwork"])
    else:
        network = next(
            iter(hns.store.names_of["network"].get(body.get("VirtualNetworkName") or "", ())), ""
        )
        if not network:
            raise HnsError(errors.NETWORK_NOT_FOUND)
    with hns.guarded("CreateEndpoint", v1=True):
        made = endpoints.create_endpoint(hns.store, settings, network, extra)
    return hns_view(hns, "endpoint", made["ID"])


def _create_policylist(hns: RestService, body: Object) -> Object:
    kind, settings = v1.policylist_settings(body)
    with hns.guarded(f"Create{_TITLES[kind]}", v1=True):
        made = (
            balancers.create_load_balancer
            if kind == "loadbalancer"
            else balancers.create_route_policy
        )(hns.store, settings)
    return hns_view(hns, kind, made["ID"])


def _update_endpoint(hns: RestService, key: str, body: Object) -> Object:
    """Replaces its policies with those of the request."""
    settings, extra = v1.endpoint_settings(body)
    with hns.guarded("ModifyEndpoint", v1=True):
        request = {
            "ResourceType": "Policy",
            "RequestType": "Update",
            "Settings": {"Policies": settings["Policies"]},
        }
        endpoints.modify_endpoint(hns.store, key, request)
        hns.store.endpoint_records[key].v1.update(extra)
    return hns_view(hns, "endpoint", key)


def _update_network(hns: RestService, key: str, body: Object) -> Object:
    settings, extra = v1.network_settings(body)
    with hns.guarded("ModifyNetwork", v1=True):
        request = {
            "ResourceType": "Policy",
            "RequestType": "Add",
            "Settings": {"Policies": settings["Policies"]},
        }
        networks.modify_hns_network(hns.store, key, request)
        if settings["Dns"]:
            networks.modify_hns_network(
                hns.store,
                key,
                {"ResourceType": "DNS", "RequestType": "Update", "Settings": settings["Dns"]},
            )
        hns.store.network_records[key].v1.update(extra)
    return hns_view(hns, "network", key)


def _attachment(hns: RestService, key: str, verb: str, body: Object) -> None:
    with hns.guarded(verb.capitalize(), v1=True):
        match body.get("SystemType"), verb:
            case "Container", "attach":
                endpoints.attach_container(hns.store, key, str(body.get("ContainerId") or ""))
            case "Container", "detach":
                endpoints.detach_container(hns.store, key, str(body.get("ContainerId") or ""))
            case "Host", "attach":
                endpoints.attach_host(hns.store, key, int(body.get("CompartmentId") or 1))
            case "Host", "detach":
                endpoints.detach_host(hns.store, key)
            case "VirtualMachine", "attach":
                name = {"VirtualNicName": body.get("VirtualNicName")}
                endpoints.modify_endpoint(
                    hns.store, key, {"ResourceType": "Port", "RequestType": "Add", "Settings": name}
                )
            case "VirtualMachine", "detach":
                endpoints.modify_endpoint(
                    hns.store, key, {"ResourceType": "Port", "RequestType": "Remove"}
                )
            case _:
                raise HnsError(errors.BAD_PARAMETER)


def _resource(hns: RestService, key: str, verb: str, body: Object) -> Object:
    kind, identifier = str(body.get("Type") or ""), str((body.get("Data") or {}).get("Id") or "")
    request = {
        "ResourceType": kind,
        "RequestType": "Add" if verb == "addresource" else "Remove",
        "Settings": {f"{kind}Id": identifier},
    }
    with hns.guarded("ModifyNamespace", v1=True):
        namespaces.modify_hns_namespace(hns.store, key, request)
    return hns_view(hns, "namespace", key)
