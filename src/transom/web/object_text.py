"""Objects as text for people: YAML like kubectl's, and differences between two of them.

Both take time that grows with the object, so they run in threads and are bounded. Knows nothing of
HTTP.
"""

from __future__ import annotations

import asyncio
import difflib
from typing import TYPE_CHECKING, Any, Final

from transom.kit.lazy import lazy_import
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.machinery import goyaml
else:
    goyaml = lazy_import("transom.machinery.goyaml")

LARGEST_TEXT: Final = 1024 * 1024
_MOST_DIFF_LINES: Final = 3000
# What only the server sets; an editor does not show it.
_SERVER_FIELDS: Final = (
    "managedFields",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "selfLink",
)


def without_managed_fields(obj: Object) -> Object:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}


def editable_object(obj: Object) -> Object:
    """The part of an object that a user may want to change."""
    kept = {key: value for key, value in obj.items() if key != "status"}
    kept["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in _SERVER_FIELDS}
    return kept


async def yaml_text(obj: Any) -> str:
    return await asyncio.to_thread(goyaml.dump_yaml, obj)


async def parse_yaml_object(text: str) -> Object:
    """The object of a YAML or JSON text. ApiError 400 if it is none."""
    data = text.encode()
    if len(data) > LARGEST_TEXT:
        raise ApiError(400, "BadRequest", "the text is larger than 1 MiB")
    try:
        found = await asyncio.to_thread(goyaml.load_yaml, data)
    except ValueError as problem:
        raise ApiError(400, "BadRequest", str(problem)) from problem
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise ApiError(400, "BadRequest", "the text is not an object with metadata")
    return found


async def diff_lines(before: str, after: str) -> list[str]:
    """A unified difference without the names of files; a one-line note if the texts are too long for it."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > 2 * _MOST_DIFF_LINES:
        return [] if old == new else ["(the object is too long to show the difference)"]
    return await asyncio.to_thread(lambda: list(difflib.unified_diff(old, new, lineterm=""))[2:])
