"""Device requests for the extended resources that the containers of a pod ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.resourcenames import is_extended_resource_name
from transom.scheduler.resource_claims import CLASS_RESOURCE_PREFIX
from transom.scheduler.resources import is_sidecar

SPECIAL_CLAIM = "<extended-resources>"  # the name of the claim before it is created


def is_dra_resource(name: str) -> bool:
    """Whether a DeviceClass can provide the resource."""
    return is_extended_resource_name(name) or name.startswith(CLASS_RESOURCE_PREFIX)


def extended_resource_requests(
    spec: Object, classes: Mapping[str, Object]
) -> tuple[list[Object], list[Object]]:
    """The device requests, and which container uses which of them. Init containers use the devices
    of the containers that follow, and one common request for what they need beyond that.
    """
    init = spec.get("initContainers") or []
    containers = [*init, *(spec.get("containers") or [])]
    short = {i for i, container in enumerate(init) if not is_sidecar(container)}
    requests: list[Object] = []
    mappings: list[Object] = []
    for resource in sorted(classes):
        device_class = classes[resource]["metadata"]["name"]
        lasting: list[Object | None] = [None] * len(containers)
        for i, container in enumerate(containers):
            if i not in short:
                lasting[i], used = _container_request(i, container, resource, device_class, ())
                mappings += used
        largest: Object | None = None
        short_mappings: list[Object] = []
        names = set()
        for i in sorted(short):
            reusable = [request for request in lasting[i:] if request is not None]
            request, used = _container_request(i, containers[i], resource, device_class, reusable)
            short_mappings += used
            if request is not None:
                names.add(request["name"])
                if largest is None or largest["exactly"]["count"] < request["exactly"]["count"]:
                    largest = request
        if largest is not None:
            requests.append(largest)
            short_mappings = [
                {**entry, "requestName": largest["name"]}
                if entry["requestName"] in names
                else entry
                for entry in short_mappings
            ]
        requests += [request for request in lasting if request is not None]
        mappings += short_mappings
    return sorted(requests, key=lambda request: request["name"]), mappings


def _container_request(
    number: int,
    container: Object,
    resource: str,
    device_class: str,
    reusable: Sequence[Object],
) -> tuple[Object | None, list[Object]]:
    wanted: Object = (container.get("resources") or {}).get("requests") or {}
    count = quantity.parse_quantity(wanted[resource]).value() if resource in wanted else 0
    if not count:
        return None, []
    mappings: list[Object] = []

    def use(request_name: str) -> None:
        mappings.append(
            {
                "containerName": container["name"],
                "resourceName": resource,
                "requestName": request_name,
            }
        )

    available = 0
    for request in reusable:
        available += request["exactly"]["count"]
        use(request["name"])
        if available >= count:
            return None, mappings
    name = f"container-{number}-request-{sorted(wanted).index(resource)}"
    use(name)
    exactly = {
        "deviceClassName": device_class,
        "allocationMode": "ExactCount",
        "count": count - available,
    }
    return {"name": name, "exactly": exactly}, mappings
