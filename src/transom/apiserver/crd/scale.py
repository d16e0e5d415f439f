"""Reads and writes the scale of a custom object, by the paths in its definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.kit.goquote import go_quote
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.machinery.validation.customobject import nested_value

_UNSET = -(2**31)  # placeholder for unset replicas while a scale is being changed


class ScalePaths:
    __slots__ = ("_replicas", "_selector", "_status")

    def __init__(self, scale: Mapping[str, str]) -> None:
        self._replicas = scale["specReplicasPath"]
        self._status = scale["statusReplicasPath"]
        self._selector = scale.get("labelSelectorPath") or ""

    def read(self, obj: Object, *, writing: bool = False) -> tuple[str, int, int]:
        """Selector, desired and current replicas. Reading unset desired replicas is an error,
        unless they are to be written.
        """
        replicas = _value(obj, self._replicas, int, _UNSET if writing else None)
        status = _value(obj, self._status, int, 0)
        selector = _value(obj, self._selector, str, "") if self._selector else ""
        if replicas is None:
            raise errors.internal(
                f"the spec replicas field {go_quote(self._replicas)} does not exist"
            )
        return selector, replicas, status

    def write(self, obj: Object, replicas: int) -> None:
        """Sets the desired replicas in an object owned by the caller."""
        if replicas == _UNSET:
            raise errors.bad_request(
                f"the spec replicas field {go_quote(self._replicas)} cannot be empty"
            )
        *outer, last = self._replicas.removeprefix(".").split(".")
        place = obj
        for i, name in enumerate(outer):
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                path = ".".join(outer[: i + 1])
                raise errors.ApiError(
                    500,
                    "",
                    f"value cannot be set because .{path} is not a map[string]interface{{}}",
                )
        place[last] = replicas


def _value(obj: Object, path: str, kind: type, missing: Any) -> Any:
    value, problem = nested_value(obj, path, kind, missing)
    if problem:
        raise errors.ApiError(500, "", problem)
    return value
