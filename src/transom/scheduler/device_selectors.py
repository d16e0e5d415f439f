"""CEL expressions that select devices: `device.driver`, `device.attributes[DOMAIN].NAME`,
`device.capacity[DOMAIN].NAME` and `device.allowMultipleAllocations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from transom.kit.cel.environment import CelExpression
from transom.kit.cel.errors import CelError, CompileError
from transom.kit.cel.types import BOOL, DYN, STRING, map_type, struct_type
from transom.kit.cel.values import CelMap, Optional
from transom.machinery import quantity
from transom.machinery.cel.environment import kubernetes_environment
from transom.machinery.cel.quantities import QUANTITY_TYPE, CelQuantity, Semver
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.scheduler.errors import SchedulingError

_COST_LIMIT: Final = 1_000_000
_DEVICE: Final = struct_type("kubernetes.DRADevice")
_FIELDS: Final = {
    "driver": STRING,
    "attributes": map_type(STRING, map_type(STRING, DYN)),
    "capacity": map_type(STRING, map_type(STRING, QUANTITY_TYPE)),
    "allowMultipleAllocations": BOOL,
}


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


@lru_cache(maxsize=1024)
def _compiled(text: str, release: Release) -> CelExpression:
    return kubernetes_environment(release).compile(
        text, {"device": _DEVICE}, {_DEVICE.name: _FIELDS}
    )


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
            expression = _compiled((selector.get("cel") or {}).get("expression", ""), release)
        except CompileError as error:
            raise SchedulingError(
                f"{where}: selector #{number}: CEL compile error: {error}"
            ) from error
        result = expression.program.evaluate({"device": variable}, _COST_LIMIT)
        problem: CelError | str | None = result.error
        if problem is None and not isinstance(result.value, bool):
            problem = f"CEL expression did not evaluate to bool: {result.value}"
        if problem is not None:
            raise SchedulingError(f"{where}: selector #{number}: CEL runtime error: {problem}")
        if not result.value:
            return False
    return True
