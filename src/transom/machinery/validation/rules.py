"""The interface of the validators of one kind, for the dispatch table.

`create` validates a new object, `update` a changed one, `status_update` a write to `/status`,
`subresources` the writes to other sub-resources that contain the whole object
(`ephemeralcontainers` of a pod).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from transom.kit.named_tuple import NamedTuple
from transom.machinery.field import FieldError
from transom.machinery.releases import Release
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


class ReleaseRules(NamedTuple):
    """The validators of a kind whose rules depend on the release."""

    create: Callable[[Release, Object], Errors]
    update: Callable[[Release, Object, Object], Errors]
    status_update: Callable[[Release, Object, Object], Errors] | None = None

    def __call__(self, features: FeatureSet) -> ValidationRules:
        release = features.release
        return ValidationRules(
            partial(self.create, release),
            partial(self.update, release),
            None if self.status_update is None else partial(self.status_update, release),
        )
