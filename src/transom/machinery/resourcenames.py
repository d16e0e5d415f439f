"""The meaning of compute resource names, and how their amounts are counted."""

from __future__ import annotations

from transom.kit.caching import text_cache
from transom.machinery import quantity
from transom.machinery.validation.names import is_qualified_name

CPU, MEMORY, EPHEMERAL, PODS = "cpu", "memory", "ephemeral-storage", "pods"
_NATIVE = "kubernetes.io/"


def is_native_resource(name: str) -> bool:
    """Resources of Kubernetes itself: without a domain, or with one of `kubernetes.io`."""
    return "/" not in name or _NATIVE in name


@text_cache(1024)
def is_extended_resource_name(name: str) -> bool:
    if is_native_resource(name) or name.startswith("requests."):
        return False
    return not is_qualified_name("requests." + name)


@text_cache(1024)
def is_scalar_resource(name: str) -> bool:
    """Resources beyond the four standard ones: extended ones, huge pages, volumes that can be
    attached.
    """
    return (
        is_extended_resource_name(name)
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or _NATIVE in name
    )


def resource_amount(name: str, text: str | int | float) -> int:
    """CPU in thousandths, everything else in units."""
    parsed = quantity.parse_quantity(text)
    return parsed.milli_value() if name == CPU else parsed.value()
