"""Writes `src/transom/apiserver/openapi/list_types.txt` from Kubernetes' published OpenAPI.

    python -m tools.openapi_facts api/openapi-spec/swagger.json

Only facts are taken: the names of the types, and of those fields that are lists and state their type
(`x-kubernetes-list-type`). Descriptions are sentences, and are not taken.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.locked import ROOT

LIST_TYPES = ROOT / "src/transom/apiserver/openapi/list_types.txt"


def list_types(document: Mapping[str, Any]) -> str:
    """One line for each type: its name, and the names of its fields."""
    lines = []
    definitions = document.get("definitions") or document["$defs"]
    for name, definition in sorted(definitions.items()):
        fields = [
            field
            for field, schema in sorted((definition.get("properties") or {}).items())
            if "x-kubernetes-list-type" in schema
        ]
        if fields:
            lines.append(" ".join([name, *fields]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    LIST_TYPES.write_text(list_types(json.loads(Path(sys.argv[1]).read_text())))
