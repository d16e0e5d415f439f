"""What the validators of one kind look like, so that the dispatch table can hold them all alike.

`create` judges a new object, `update` a changed one, `status_update` a write to `/status`, `subresources` the writes to
other sub-resources that carry the whole object (`ephemeralcontainers` of a pod).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from transom.machinery.field import FieldError

Object = dict[str, Any]
Errors = list[FieldError]
Create = Callable[[Object], Errors]
Update = Callable[[Object, Object], Errors]


class Rules(NamedTuple):
    create: Create
    update: Update
    status_update: Update | None = None
    subresources: Mapping[str, Update] = MappingProxyType({})
