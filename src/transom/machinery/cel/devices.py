"""CEL expressions that select devices (resource.k8s.io): the type of `device`, the limits of its
values, and the compiled selector.

Kubernetes: k8s.io/dynamic-resource-allocation/cel. API validation compiles new expressions here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from transom.kit.cel.cost import CostRange
from transom.kit.cel.environment import CelEnvironment, CelExpression
from transom.kit.cel.errors import CompileError
from transom.kit.cel.macros import BINDING_MACROS
from transom.kit.cel.types import BOOL, DYN, STRING, CelType, map_type, struct_type, type_of_type
from transom.machinery.cel.costs import CHARGED, KubernetesEstimator, charge_call
from transom.machinery.cel.environment import LIBRARIES, LIBRARY_TYPES
from transom.machinery.cel.quantities import QUANTITY_TYPE
from transom.machinery.releases.release import Release

MAX_DEVICE_EXPRESSION_BYTES: Final = 10 * 1024
MAX_DEVICE_EXPRESSION_COST: Final = 1_000_000
_MAX_DOMAIN: Final = 63
_MAX_ID: Final = 32
_MAX_VALUE: Final = 64
_MAX_ENTRIES: Final = 32
_DEVICE: Final = struct_type("kubernetes.DRADevice")
# The longest value at a path below `device`; "*" is any name.
_SIZES: Final[dict[tuple[str, ...], int]] = {
    ("driver",): 63,
    ("allowMultipleAllocations",): 1,
    ("attributes",): _MAX_ENTRIES,
    ("attributes", "@keys"): _MAX_DOMAIN,
    ("attributes", "*"): _MAX_ENTRIES,
    ("attributes", "*", "@keys"): _MAX_ID,
    ("attributes", "*", "*"): _MAX_VALUE,
    ("capacity",): _MAX_ENTRIES,
    ("capacity", "@keys"): _MAX_DOMAIN,
    ("capacity", "@values"): _MAX_ENTRIES,
    ("capacity", "@values", "@keys"): _MAX_ID,
    ("capacity", "@values", "@values"): 0,
}


class DeviceSelectorError(Exception):
    """The expression cannot select devices. `too_complex` if only its cost is the problem."""

    def __init__(self, message: str, *, too_complex: bool = False) -> None:
        super().__init__(message)
        self.too_complex = too_complex


@lru_cache(maxsize=8)
def _environment(release: Release) -> CelEnvironment:
    known = [library for library in LIBRARIES if library.since <= release]
    return CelEnvironment(
        [library.functions for library in known],
        [*(library.macros for library in known), BINDING_MACROS],
        CHARGED,
        charge_call,
        {kind.name: (type_of_type(kind), kind) for kind in LIBRARY_TYPES},
    )


def _size_at(path: Sequence[str], _kind: CelType) -> CostRange | None:
    if not path or path[0] != "device":
        return None
    if len(path) == 1:
        return CostRange(0, 0)
    names = list(path[1:])
    if names[0] == "attributes":
        # An attribute has the same limit by whatever name it is selected.
        names[1:] = [name if name == "@keys" else "*" for name in names[1:]]
    found = _SIZES.get(tuple(names))
    return None if found is None else CostRange(0, found)


@lru_cache(maxsize=256)
def device_selector_cost(text: str, release: Release) -> int:
    """The most that one evaluation can cost. Raises DeviceSelectorError."""
    expression = compile_device_selector(text, release, consumable_capacity=True)
    return expression.estimate(KubernetesEstimator(_size_at)).max


@lru_cache(maxsize=256)
def compile_device_selector(
    text: str, release: Release, *, consumable_capacity: bool
) -> CelExpression:
    """Raises DeviceSelectorError with Kubernetes' text."""
    fields = {
        "driver": STRING,
        "attributes": map_type(STRING, map_type(STRING, DYN)),
        "capacity": map_type(STRING, map_type(STRING, QUANTITY_TYPE)),
    }
    if consumable_capacity:
        fields["allowMultipleAllocations"] = BOOL
    try:
        expression = _environment(release).compile(
            text, {"device": _DEVICE}, {_DEVICE.name: fields}
        )
    except CompileError as error:
        raise DeviceSelectorError(f"compilation failed: {error}") from None
    if expression.type not in (BOOL, DYN):
        raise DeviceSelectorError(
            f"must evaluate to bool or the unknown type, not {expression.type}"
        )
    if expression.estimate(KubernetesEstimator(_size_at)).max > MAX_DEVICE_EXPRESSION_COST:
        raise DeviceSelectorError("too complex, exceeds cost limit", too_complex=True)
    return expression
