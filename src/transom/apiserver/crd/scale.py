"""Where the scale of a custom object is, by the paths its definition gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.machinery import errors
from transom.machinery.field import go_quote
from transom.machinery.objects import Object
from transom.machinery.validation.customobject import nested

_UNSET = -(2**31)  # stands for no number while a scale is being changed


class ScalePaths:
    __slots__ = ("_replicas", "_selector", "_status")

    def __init__(self, scale: Mapping[str, str]) -> None:
        self._replicas = scale["specReplicasPath"]
        self._status = scale["statusReplicasPath"]
        self._selector = scale.get("labelSelectorPath") or ""

    def read(self, obj: Object, *, writing: bool = False) -> tuple[str, int, int]:
        """Selector, wanted and current replicas. To read wanted ones that nobody set is an error; to write them is not."""
        replicas = _value(obj, self._replicas, int, _UNSET if writing else None)
        status = _value(obj, self._status, int, 0)
        selector = _value(obj, self._selector, str, "") if self._selector else ""
        if replicas is None:
            raise errors.internal(f"the spec replicas field {go_quote(self._replicas)} does not exist")
        return selector, replicas, status

    def write(self, obj: Object, replicas: int) -> None:
        """Set the wanted replicas in an object of the caller's own."""
        if replicas == _UNSET:
            raise errors.bad_request(f"the spec replicas field {go_quote(self._replicas)} cannot be empty")
        *outer, last = self._replicas.removeprefix(".").split(".")
        place = obj
        for i, name in enumerate(outer):
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                path = ".".join(outer[: i + 1])
                raise errors.ApiError(500, "", f"value cannot be set because .{path} is not a map[string]interface{{}}")
        place[last] = replicas


def _value(obj: Object, path: str, kind: type, missing: Any) -> Any:
    value, problem = nested(obj, path, kind, missing)
    if problem:
        raise errors.ApiError(500, "", problem)
    return value
