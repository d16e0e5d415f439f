"""The Active Directory domain of a container, from its credential spec."""

from __future__ import annotations

import json

from transom.userland.api import ProgramContext


def credential_spec(context: ProgramContext) -> dict[str, str]:
    """The domain join of the container's credential spec; empty without one."""
    try:
        spec = json.loads(context.windows.credential_spec or "{}")
    except ValueError:
        return {}
    joined = spec.get("DomainJoinConfig") if isinstance(spec, dict) else None
    return {key: str(value) for key, value in joined.items()} if isinstance(joined, dict) else {}
