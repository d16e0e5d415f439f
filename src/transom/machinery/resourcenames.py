"""What the name of a compute resource tells, and how amounts of it are counted."""

from __future__ import annotations

from functools import lru_cache

from transom.machinery import quantity
from transom.machinery.validation.names import is_qualified_name

CPU, MEMORY, EPHEMERAL, PODS = "cpu", "memory", "ephemeral-storage", "pods"
_NATIVE = "kubernetes.io/"


@lru_cache(maxsize=1024)
def is_extended(name: str) -> bool:
    if "/" not in name or _NATIVE in name or name.startswith("requests."):
        return False
    return not is_qualified_name("requests." + name)


@lru_cache(maxsize=1024)
def is_scalar(name: str) -> bool:
    """Resources beyond the four everybody knows: extended ones, huge pages, volumes that can be attached."""
    return is_extended(name) or name.startswith(("hugepages-", "attachable-volumes-")) or _NATIVE in name


def amount(name: str, text: str | int | float) -> int:
    """Processors in thousandths, everything else in units."""
    parsed = quantity.parse(text)
    return parsed.milli_value() if name == CPU else parsed.value()
