"""v1 requests: methods and paths, over the same objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transom.hosts.windows.hns import balancers, endpoints, errors, namespaces, networks, v1
from transom.hosts.windows.hns.errors import HnsError
from transom.hosts.windows.hns.names import guid
from transom.hosts.windows.hns.store import Object

if TYPE_CHECKING:
    from transom.hosts.windows.hns.service import Hns

_FIRST_WITH_VERSION: Final = (7, 2)  # older services do not tell it
_KINDS: Final = {"networks": "network", "endpoints": "endpoint", "namespaces": "namespace"}
_TITLES: Final = {"network": "Network", "endpoint": "Endpoint", "namespace": "Namespace", "loadbalancer": "LoadBalancer",
                  "route": "Route"}  # fmt: skip


def call(hns: Hns, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    try:
        output = _answer(hns, method.upper(), [part for part in path.split("/") if part], dict(body or {}))
    except HnsError as error:
        return {"Success": False, "Error": error.message, "ErrorCode": error.code or errors.BAD_PARAMETER}
    return {"Success": True} if output is None else {"Success": True, "Output": output}


def _answer(hns: Hns, method: str, parts: list[str], body: Object) -> Any:
    match method, parts:
        case "GET", ["globals", "version"]:
            if hns.version < _FIRST_WITH_VERSION:
                raise HnsError(errors.ELEMENT_NOT_FOUND)
            return {"Major": hns.version[0], "Minor": hns.version[1]}
        case "GET", ["endpointstats", key]:
            return hns.stats(key)
        case "GET", ["policylists"]:
            return [view(hns, kind, key) for kind in ("loadbalancer", "route") for key in hns.store.objects[kind]]
        case "POST", ["policylists"]:
            return _create_policylist(hns, body)
        case "GET" | "DELETE", ["policylists", key]:
            kind = "route" if guid(key) in hns.store.objects["route"] else "loadbalancer"
            return _one(hns, method, kind, key)
        case "GET", ["networks" | "endpoints" | "namespaces" as path]:
            kind = _KINDS[path]
            return [view(hns, kind, key) for key in hns.store.objects[kind]]
        case "POST", ["networks"]:
            settings, extra = v1.network_settings(body)
            with hns.guarded("CreateNetwork", v1=True):
                made = networks.create(hns.store, settings, extra)
            return view(hns, "network", made["ID"])
        case "POST", ["endpoints"]:
            return _create_endpoint(hns, body)
        case "POST", ["namespaces"]:
            with hns.guarded("CreateNamespace", v1=True):
                made = namespaces.create(hns.store, {"Type": "HostDefault" if body.get("IsDefault") else "Host"})
            return view(hns, "namespace", made["ID"])
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


def view(hns: Hns, kind: str, key: str) -> Object:
    """An object as the v1 schema has it."""
    store = hns.store
    obj = store.objects[kind][key]
    match kind:
        case "network":
            return v1.network_view(obj, store.network_records[key], hns.management_ip(key), hns.version)
        case "endpoint":
            record = store.endpoint_records[key]
            above = store.objects["network"][record.network]
            return v1.endpoint_view(obj, record, above, store.network_records[record.network].type, hns.version)
        case "namespace":
            return v1.namespace_view(obj)
        case "loadbalancer":
            return v1.balancer_view(obj, hns.version)
    return v1.route_view(obj, hns.version)


def _find(hns: Hns, kind: str, identifier: str) -> str:
    key = guid(identifier)
    if not key:
        raise HnsError(errors.BAD_GUID)
    return hns.store.find(kind, key)


def _one(hns: Hns, method: str, kind: str, identifier: str) -> Object | None:
    if method == "GET":
        return view(hns, kind, _find(hns, kind, identifier))
    with hns.guarded(f"Delete{_TITLES[kind]}", v1=True):
        hns.remove(kind, _find(hns, kind, identifier))
    return None


def _create_endpoint(hns: Hns, body: Object) -> Object:
    settings, extra = v1.endpoint_settings(body)
    if body.get("VirtualNetwork"):
        network = _find(hns, "network", body["VirtualNetwork"])
    else:
        network = next(iter(hns.store.names_of["network"].get(body.get("VirtualNetworkName") or "", ())), "")
        if not network:
            raise HnsError(errors.NETWORK_NOT_FOUND)
    with hns.guarded("CreateEndpoint", v1=True):
        made = endpoints.create(hns.store, settings, network, extra)
    return view(hns, "endpoint", made["ID"])


def _create_policylist(hns: Hns, body: Object) -> Object:
    kind, settings = v1.policylist_settings(body)
    with hns.guarded(f"Create{_TITLES[kind]}", v1=True):
        made = (balancers.create if kind == "loadbalancer" else balancers.create_route)(hns.store, settings)
    return view(hns, kind, made["ID"])


def _update_endpoint(hns: Hns, key: str, body: Object) -> Object:
    """Its policies become those of the request."""
    settings, extra = v1.endpoint_settings(body)
    with hns.guarded("ModifyEndpoint", v1=True):
        request = {"ResourceType": "Policy", "RequestType": "Update", "Settings": {"Policies": settings["Policies"]}}
        endpoints.modify(hns.store, key, request)
        hns.store.endpoint_records[key].v1.update(extra)
    return view(hns, "endpoint", key)


def _update_network(hns: Hns, key: str, body: Object) -> Object:
    settings, extra = v1.network_settings(body)
    with hns.guarded("ModifyNetwork", v1=True):
        request = {"ResourceType": "Policy", "RequestType": "Add", "Settings": {"Policies": settings["Policies"]}}
        networks.modify(hns.store, key, request)
        if settings["Dns"]:
            networks.modify(hns.store, key, {"ResourceType": "DNS", "RequestType": "Update", "Settings": settings["Dns"]})
        hns.store.network_records[key].v1.update(extra)
    return view(hns, "network", key)


def _attachment(hns: Hns, key: str, verb: str, body: Object) -> None:
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
                endpoints.modify(hns.store, key, {"ResourceType": "Port", "RequestType": "Add", "Settings": name})
            case "VirtualMachine", "detach":
                endpoints.modify(hns.store, key, {"ResourceType": "Port", "RequestType": "Remove"})
            case _:
                raise HnsError(errors.BAD_PARAMETER)


def _resource(hns: Hns, key: str, verb: str, body: Object) -> Object:
    kind, identifier = str(body.get("Type") or ""), str((body.get("Data") or {}).get("Id") or "")
    request = {
        "ResourceType": kind,
        "RequestType": "Add" if verb == "addresource" else "Remove",
        "Settings": {f"{kind}Id": identifier},
    }
    with hns.guarded("ModifyNamespace", v1=True):
        namespaces.modify(hns.store, key, request)
    return view(hns, "namespace", key)
