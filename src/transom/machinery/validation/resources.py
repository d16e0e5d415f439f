"""Resource names, quantities and requirements of containers (and of pod overhead)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.machinery.field import forbidden, invalid, not_supported, required
from transom.machinery.quantity import parse_quantity
from transom.machinery.resourcenames import is_extended_resource_name, is_native_resource
from transom.machinery.validation import godump
from transom.machinery.validation.common import all_invalid
from transom.machinery.validation.names import NEGATIVE, is_qualified_name
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions
from transom.machinery.validation.rules import Errors

HUGE_PAGES = "hugepages-"
_REQUESTS = "requests."

_CONTAINER_RESOURCES = frozenset(("cpu", "memory", "ephemeral-storage"))
_INTEGER_RESOURCES = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_STANDARD_RESOURCES = (
    _CONTAINER_RESOURCES
    | _INTEGER_RESOURCES
    | frozenset(
        (
            "requests.cpu",
            "requests.memory",
            "requests.ephemeral-storage",
            "limits.cpu",
            "limits.memory",
            "limits.ephemeral-storage",
            "storage",
            "requests.storage",
        )
    )
)


def is_overcommit_allowed(name: str) -> bool:
    return is_native_resource(name) and not name.startswith(HUGE_PAGES)


def is_integer_resource(name: str) -> bool:
    return name in _INTEGER_RESOURCES or is_extended_resource_name(name)


def is_standard_resource(name: str) -> bool:
    return name in _STANDARD_RESOURCES or name.startswith((HUGE_PAGES, _REQUESTS + HUGE_PAGES))


def check_resource_name(name: str, path: str, errs: Errors) -> None:
    messages = is_qualified_name(name)
    if messages:
        all_invalid(messages, name, path, errs)
    elif "/" not in name and not is_standard_resource(name):
        errs.append(invalid(path, name, "must be a standard resource type or fully qualified"))


def check_container_resource_name(name: str, path: str, errs: Errors) -> None:
    if name in _CONTAINER_RESOURCES:
        return
    check_resource_name(name, path, errs)
    if "/" not in name:
        if not name.startswith(HUGE_PAGES):
            errs.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native_resource(name) and not is_extended_resource_name(name):
        errs.append(invalid(path, name, "doesn't follow extended resource name standard"))


def check_resource_quantity(name: str, text: str, path: str, errs: Errors) -> None:
    """A quantity must not be negative, and is an integer if the resource is counted."""
    value = parse_quantity(text)
    if value.mantissa < 0:
        errs.append(invalid(path, str(value), NEGATIVE))
    if (
        name not in _CONTAINER_RESOURCES
        and is_integer_resource(name)
        and value.milli_value() % 1000
    ):
        errs.append(invalid(path, godump.dump_quantity(text), "must be an integer"))


_POD_RESOURCES = ("cpu", "hugepages-", "memory")


def check_pod_resource_name(name: str, path: str, errs: Errors) -> None:
    """A resource of a whole pod."""
    before = len(errs)
    check_resource_name(name, path, errs)
    if len(errs) == before and name not in ("cpu", "memory") and not name.startswith(HUGE_PAGES):
        errs.append(not_supported(path, name, _POD_RESOURCES))


def _check_huge_pages(name: str, text: str, path: str, errs: Errors) -> None:
    """A multiple of the size of a page."""
    size, amount = parse_quantity(name.removeprefix(HUGE_PAGES)), parse_quantity(text)
    pages = size.value()
    if amount.mantissa < 0 or pages <= 0 or amount.milli_value() % (pages * 1000):
        errs.append(
            invalid(path, str(amount), f"{amount} is not positive integer multiple of {name}")
        )


def check_resource_requirements(
    requirements: dict[str, Any],
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
    check_name: Callable[[str, str, Errors], None] = check_container_resource_name,
) -> None:
    divisible = options.checks_huge_pages
    limits: dict[str, str] = requirements.get("limits") or {}
    requests: dict[str, str] = requirements.get("requests") or {}
    for name, text in limits.items():
        where = f"{path}.limits[{name}]"
        check_name(name, where, errs)
        check_resource_quantity(name, text, where, errs)
        if divisible and name.startswith(HUGE_PAGES):
            _check_huge_pages(name, text, where, errs)
    for name, text in requests.items():
        where = f"{path}.requests[{name}]"
        check_name(name, where, errs)
        check_resource_quantity(name, text, where, errs)
        _check_request_against_limit(name, text, limits.get(name), path, errs, options)
        if divisible and name.startswith(HUGE_PAGES):
            _check_huge_pages(name, text, where, errs)
    names = {*limits, *requests}
    if any(name.startswith(HUGE_PAGES) for name in names) and not names & {"cpu", "memory"}:
        errs.append(forbidden(path, "HugePages require cpu or memory"))


def _check_request_against_limit(
    name: str, request: str, limit: str | None, path: str, errs: Errors, options: PodOptions
) -> None:
    if limit is None:
        if not is_overcommit_allowed(name):
            errs.append(
                required(f"{path}.limits", "Limit must be set for non overcommitable resources")
            )
    elif request != limit:
        most = parse_quantity(limit)
        order = parse_quantity(request).compare(most)
        if order and not is_overcommit_allowed(name):
            text = f"must be equal to {name} limit"
        elif order > 0:
            text = f"must be less than or equal to {name} limit"
        else:
            return
        if options.names_limit:
            text += f" of {most}"
        errs.append(invalid(f"{path}.requests", request, text))
