"""Namespaces: the compartments of the host's network stack, and their members."""

from __future__ import annotations

from typing import Final

from transom.machines.windows.hns import endpoints, errors
from transom.machines.windows.hns.errors import HnsError
from transom.machines.windows.hns.store import ATTACHED, DETACHED, SCHEMA, HnsStore, Object

TYPES: Final = ("Host", "HostDefault", "Guest", "GuestDefault")
_DEFAULTS: Final = ("HostDefault", "GuestDefault")


def create_hns_namespace(store: HnsStore, settings: Object) -> Object:
    kind = settings.get("Type") or "Host"
    if kind not in TYPES:
        raise HnsError(errors.BAD_PARAMETER)
    table = store.objects["namespace"]
    if kind in _DEFAULTS and any(other["Type"] == kind for other in table.values()):
        raise HnsError(errors.DEFAULT_NAMESPACE_EXISTS)
    key = store.new_id("namespace", settings.get("ID"))
    obj = {
        "ID": key,
        "NamespaceId": 1 if kind in _DEFAULTS else _compartment(table),
        "Type": kind,
        "SchemaVersion": SCHEMA,
    }
    return store.put("namespace", key, obj)


def _compartment(table: dict[str, Object]) -> int:
    """The lowest free one; 1 is the host's own."""
    used = {other["NamespaceId"] for other in table.values()}
    number = 2
    while number in used:
        number += 1
    return number


def modify_hns_namespace(store: HnsStore, key: str, request: Object) -> None:
    settings = request.get("Settings") or {}
    match request.get("ResourceType"), request.get("RequestType"):
        case "Endpoint", "Add":
            add_endpoint(store, key, store.find("endpoint", settings.get("EndpointId")))
        case "Endpoint", "Remove":
            remove_endpoint(store, key, store.find("endpoint", settings.get("EndpointId")))
        case "Container", "Add":
            _add(store, key, "Container", str(settings.get("ContainerId") or ""))
        case "Container", "Remove":
            _remove(store, key, "Container", str(settings.get("ContainerId") or ""))
        case _:
            raise HnsError(errors.REQUEST_UNSUPPORTED)


def add_endpoint(store: HnsStore, key: str, endpoint: str) -> None:
    obj, record = store.objects["endpoint"][endpoint], store.endpoint_records[endpoint]
    if obj.get("Flags", 0) & endpoints.REMOTE:
        raise HnsError(errors.INVALID_REMOTE_OPERATION)
    if obj.get("HostComputeNamespace"):
        raise HnsError(errors.IN_A_NAMESPACE)
    if record.host or record.machine:
        raise HnsError(errors.ALREADY_ATTACHED)
    record.state = ATTACHED
    _add(store, key, "Endpoint", endpoint)
    store.put("endpoint", endpoint, _with_namespace(obj, key))


def _with_namespace(obj: Object, key: str) -> Object:
    """The position of the field in the schema."""
    head = {name: obj[name] for name in ("ID", "Name", "HostComputeNetwork")}
    return {**head, "HostComputeNamespace": key, **obj}


def remove_endpoint(store: HnsStore, key: str, endpoint: str) -> None:
    obj = store.objects["endpoint"][endpoint]
    if obj.get("HostComputeNamespace") != key:
        raise HnsError(errors.ELEMENT_NOT_FOUND)
    _remove(store, key, "Endpoint", endpoint)
    _detached(store, endpoint)


def _detached(store: HnsStore, endpoint: str) -> None:
    obj = store.objects["endpoint"][endpoint]
    store.endpoint_records[endpoint].state = DETACHED
    store.put(
        "endpoint",
        endpoint,
        {name: value for name, value in obj.items() if name != "HostComputeNamespace"},
    )


def _add(store: HnsStore, key: str, kind: str, identifier: str) -> None:
    obj = store.objects["namespace"][key]
    present = obj.get("Resources", [])
    resource = {"Type": kind, "Data": {"ID": identifier}}
    if not identifier:
        raise HnsError(errors.BAD_PARAMETER)
    if resource in present:
        raise HnsError(errors.OBJECT_EXISTS)
    store.put("namespace", key, {**obj, "Resources": [*present, resource]})


def _remove(store: HnsStore, key: str, kind: str, identifier: str) -> None:
    obj = store.objects["namespace"][key]
    resource = {"Type": kind, "Data": {"ID": identifier}}
    present = obj.get("Resources", [])
    if resource not in present:
        raise HnsError(errors.ELEMENT_NOT_FOUND)
    changed = {**obj, "Resources": [each for each in present if each != resource]}
    if not changed["Resources"]:
        del changed["Resources"]
    store.put("namespace", key, changed)


def delete_hns_namespace(store: HnsStore, key: str) -> None:
    """Its endpoints remain, without a namespace."""
    for resource in store.objects["namespace"][key].get("Resources", ()):
        if resource["Type"] == "Endpoint" and resource["Data"]["ID"] in store.endpoint_records:
            _detached(store, resource["Data"]["ID"])
    store.drop("namespace", key)
