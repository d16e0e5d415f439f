"""The printer columns of built-in kinds in each release from 1.21 on."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from transom.machinery.releases.release import Release, in_range, table_lines


@cache
def release_columns(release: Release) -> dict[str, list[dict[str, Any]]]:
    """Kind -> its column definitions."""
    texts: dict[int, str] = {}
    out: dict[str, list[dict[str, Any]]] = {}
    for line in table_lines("columns.txt"):
        if line.startswith("="):
            number, _, text = line[1:].partition(" ")
            texts[int(number)] = json.loads(text)
            continue
        kind, _, rest = line.partition(" ")
        rest, at, where = rest.partition("]] @")
        if at and not in_range(where, release):
            continue
        out[kind] = [
            {
                "name": name,
                "type": type_name,
                "format": form,
                "description": texts[number],
                "priority": priority,
            }
            for name, type_name, form, priority, number in json.loads(rest + ("]]" if at else ""))
        ]
    return out
