"""The interface of the validators of one kind, for the dispatch table.

`create` validates a new object, `update` a changed one, `status_update` a write to `/status`,
`subresources` the writes to other sub-resources that contain the whole object
(`ephemeralcontainers` of a pod).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from transom.machinery.field import FieldError
from transom.machinery.releases.features import FeatureSet

Object = dict[str, Any]
Errors = list[FieldError]
Create = Callable[[Object], Errors]
Update = Callable[[Object, Object], Errors]


class ValidationRules(NamedTuple):
    create: Create
    update: Update
    status_update: Update | None = None
    subresources: Mapping[str, Update] = MappingProxyType({})


# The rules of a kind that are not the same in all releases.
RulesFactory = Callable[[FeatureSet], ValidationRules]
