"""Evaluates CEL expressions that select devices: `device.driver`, `device.attributes[DOMAIN].NAME`,
`device.capacity[DOMAIN].NAME` and `device.allowMultipleAllocations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transom.kit.cel.errors import CelError
from transom.kit.cel.values import CelMap, Optional
from transom.machinery import quantity
from transom.machinery.cel.devices import (
    MAX_DEVICE_EXPRESSION_COST,
    DeviceSelectorError,
    compile_device_selector,
)
from transom.machinery.cel.quantities import CelQuantity, Semver
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.scheduler.errors import SchedulingError


class _Domains(CelMap):
    """Values by domain and name. A domain without values is an empty map."""

    __slots__ = ("_domains",)

    def __init__(self, domains: dict[str, dict[str, Any]]) -> None:
        self._domains = domains

    def __len__(self) -> int:
        return len(self._domains)

    def __iter__(self) -> Iterator[str]:
        return iter(self._domains)

    def find(self, key: Any) -> Optional:
        return Optional(True, self._domains.get(key, {}))

    def is_set(self, key: Any) -> bool:
        return key in self._domains


def device_variable(driver: str, device: Object) -> dict[str, Any]:
    """The value of `device` in an expression."""
    return {
        "driver": driver,
        "attributes": _Domains(
            _by_domain(driver, device.get("attributes") or {}, _attribute_value)
        ),
        "capacity": _Domains(_by_domain(driver, device.get("capacity") or {}, _capacity_value)),
        "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
    }


def _by_domain(driver: str, values: Object, convert: Any) -> dict[str, dict[str, Any]]:
    out: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        domain, slash, rest = name.rpartition("/")
        out.setdefault(domain if slash else driver, {})[rest] = convert(value)
    return out


def _attribute_value(attribute: Object) -> Any:
    if "version" in attribute:
        return Semver(attribute["version"])
    for kind in ("string", "int", "bool"):
        if kind in attribute:
            return attribute[kind]
    return next(iter(attribute.values()), None)


def _capacity_value(capacity: Object) -> CelQuantity:
    return CelQuantity(quantity.parse_quantity(capacity.get("value", "0")))


def selectors_match(
    selectors: list[Object], variable: dict[str, Any], release: Release, where: str
) -> bool:
    """Whether a device matches all selectors. Raises SchedulingError with the place of the
    selector that is in error.
    """
    for number, selector in enumerate(selectors):
        try:
            text = (selector.get("cel") or {}).get("expression", "")
            expression = compile_device_selector(text, release, consumable_capacity=True)
        except DeviceSelectorError as error:
            message = str(error).removeprefix("compilation failed: ")
            raise SchedulingError(
                f"{where}: selector #{number}: CEL compile error: {message}"
            ) from error
        result = expression.program.evaluate({"device": variable}, MAX_DEVICE_EXPRESSION_COST)
        problem: CelError | str | None = result.error
        if problem is None and not isinstance(result.value, bool):
            problem = f"CEL expression did not evaluate to bool: {result.value}"
        if problem is not None:
            raise SchedulingError(f"{where}: selector #{number}: CEL runtime error: {problem}")
        if not result.value:
            return False
    return True
