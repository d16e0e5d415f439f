"""The status of a pod: its claims, and users and resources of its containers. Releases without such
a field drop it before.
"""

from __future__ import annotations

from typing import Any

from transom.machinery.field import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from transom.machinery.objects import Object
from transom.machinery.validation.checks import check_each, dns_label
from transom.machinery.validation.names import (
    byte_len,
    is_valid_user_id,
    name_is_dns_subdomain,
)

Errors = list[FieldError]

_KINDS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_LONGEST_MESSAGE = 1024


def claim_status_errors(status: Object, spec: Object) -> Errors:
    known = {claim.get("name", "") for claim in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    errors: Errors = []
    for i, entry in enumerate(status.get("resourceClaimStatuses") or ()):
        path, name = f"status.resourceClaimStatuses[{i}]", entry.get("name", "")
        if name not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(invalid(f"{path}.name", name, text))
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        claim = entry.get("resourceClaimName")
        if claim is not None:
            errors += check_each(
                f"{path}.resourceClaimName", claim, name_is_dns_subdomain(claim, False)
            )
    extended = status.get("extendedResourceClaimStatus")
    return errors if extended is None else errors + _extended_claim(extended, spec)


def _extended_claim(extended: Object, spec: Object) -> Errors:
    path = "status.extendedResourceClaimStatus"
    containers = {
        container.get("name", ""): container
        for kind in ("initContainers", "containers")
        for container in spec.get(kind) or ()
    }
    errors: Errors = []
    mappings = extended.get("requestMappings") or ()
    if not mappings:
        errors.append(
            required(f"{path}.requestMappings", "at least one request mapping is required")
        )
    seen: set[tuple[str, ...]] = set()
    for i, mapping in enumerate(mappings):
        where = f"{path}.requestMappings[{i}]"
        names = ("containerName", "resourceName", "requestName")
        container, resource, request = key = tuple(mapping.get(name, "") for name in names)
        if container not in containers:
            text = (
                "must match the name of an entry in spec.initContainers.name or "
                "spec.containers.name"
            )
            errors.append(invalid(f"{where}.containerName", container, text))
        elif resource not in _requests(containers[container]):
            text = (
                "must match the extended resource name of an entry in "
                "spec.initContainers.resources.requests or spec.containers.resources.requests"
            )
            errors.append(invalid(f"{where}.resourceName", resource, text))
        errors += dns_label(request, f"{path}.requestName")
        if key in seen:
            errors += [duplicate(f"{where}.{n}", v) for n, v in zip(names, key, strict=True)]
        seen.add(key)
    claim = extended.get("resourceClaimName", "")
    if not claim:
        return [*errors, required(f"{path}.resourceClaimName")]
    return errors + check_each(
        f"{path}.resourceClaimName", claim, name_is_dns_subdomain(claim, False)
    )


def _requests(container: Object) -> Any:
    return (container.get("resources") or {}).get("requests") or {}


def container_status_errors(status: Object, spec: Object) -> Errors:
    """The users of all containers, then the resources that are allocated to them."""
    windows = (spec.get("os") or {}).get("name") == "windows"
    errors: Errors = []
    for kind in _KINDS:
        for i, container in enumerate(status.get(kind) or ()):
            user = (container.get("user") or {}).get("linux")
            if user is not None:
                errors += _user_errors(user, f"status.{kind}[{i}].user.linux", windows=windows)
    for kind in _KINDS:
        listed = {"containerStatuses": "containers", "initContainerStatuses": "initContainers"}
        own = {c.get("name", ""): c for c in spec.get(listed.get(kind, "")) or ()}
        for i, container in enumerate(status.get(kind) or ()):
            allocated, path = container.get("allocatedResourcesStatus") or (), f"status.{kind}[{i}]"
            if allocated and kind not in listed:
                text = "must not be specified in container status"
                errors.append(forbidden(f"{path}.allocatedResourcesStatus", text))
                continue
            for j, resource in enumerate(allocated):
                where = f"{path}.allocatedResourcesStatus[{j}]"
                errors += _allocated_errors(resource, own.get(container.get("name", "")), where)
    return errors


def _user_errors(user: Object, path: str, *, windows: bool) -> Errors:
    if windows:
        return [forbidden(path, "cannot be set for a windows pod")]
    uid, gid = user.get("uid", 0), user.get("gid", 0)
    errors = check_each(f"{path}.uid", uid, is_valid_user_id(uid))
    errors += check_each(f"{path}.gid", gid, is_valid_user_id(gid))
    for i, group in enumerate(user.get("supplementalGroups") or ()):
        errors += check_each(f"{path}.supplementalGroups[{i}]", group, is_valid_user_id(group))
    return errors


def _allocated_errors(resource: Object, container: Object | None, path: str) -> Errors:
    errors: Errors = []
    name = resource.get("name", "")
    if container is not None:
        known, text = _requests(container), "must match one of the container's resource requests"
        if name.startswith("claim:"):
            claims = (container.get("resources") or {}).get("claims") or ()
            known = {
                f"claim:{c.get('name', '')}" + (f"/{c['request']}" if c.get("request") else "")
                for c in claims
            }
            text = (
                "must match one of the container's resource claims in a format "
                "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
            )
        if name not in known:
            errors.append(invalid(f"{path}.name", name, text))
    seen: set[str] = set()
    for i, one in enumerate(resource.get("resources") or ()):
        where, message = f"{path}.resources[{i}]", one.get("message")
        if one.get("health", "") not in _HEALTH:
            errors.append(not_supported(f"{where}.health", one.get("health", ""), _HEALTH))
        if message == "":
            errors.append(required(f"{where}.message", "must be non-empty if specified"))
        elif message is not None and byte_len(message) > _LONGEST_MESSAGE:
            errors.append(too_long(f"{where}.message", message, _LONGEST_MESSAGE))
        if one.get("resourceID", "") in seen:
            errors.append(duplicate(f"{where}.resourceID", one.get("resourceID", "")))
        seen.add(one.get("resourceID", ""))
    return errors
