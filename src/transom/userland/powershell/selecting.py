"""The properties that a cmdlet picks from an object: by name, by wildcard, or computed."""

from __future__ import annotations

from typing import Any

from transom.userland.powershell import members
from transom.userland.powershell.cmdlets import CmdletCall
from transom.userland.powershell.formatting import property_text
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    Hashtable,
    PsObject,
    ScriptBlock,
    to_items,
    to_text,
    unrolled,
)


async def computed(call: CmdletCall, item: Any, wanted: Any) -> tuple[str, Any]:
    """A property by name, or a calculated one from a table with a name and an expression."""
    if isinstance(wanted, Hashtable):
        name = to_text(
            wanted.find("Name") or wanted.find("N") or wanted.find("Label") or wanted.find("L")
        )
        source = wanted.find("Expression") or wanted.find("E")
        if isinstance(source, ScriptBlock):
            return name, unrolled(await call.evaluator.invoke(source, [], item))
        return name or to_text(source), property_text(item, to_text(source))
    if isinstance(wanted, ScriptBlock):
        return to_text(wanted), unrolled(await call.evaluator.invoke(wanted, [], item))
    return to_text(wanted), members.get_property(call.evaluator, item, to_text(wanted))


def _names_of(value: Any) -> list[str]:
    if isinstance(value, PsObject):
        return list(value.properties)
    return [to_text(key) for key in value] if isinstance(value, Hashtable) else []


async def selected(call: CmdletCall, value: Any, wanted: list[Any]) -> dict[str, Any]:
    """Properties by name, wildcard or expression."""
    out: dict[str, Any] = {}
    excluded = [to_text(one) for one in to_items(call.get("ExcludeProperty"))]
    for one in wanted:
        if isinstance(one, str) and ("*" in one or "?" in one):
            out |= {
                name: property_text(value, name)
                for name in _names_of(value)
                if matches_wildcard(name, one)
            }
        elif isinstance(one, ScriptBlock):
            source = to_text(one) or "Expression"
            out[source] = unrolled(await call.evaluator.invoke(one, [], value))
        else:
            name, content = await computed(call, value, one)
            own = next((known for known in _names_of(value) if known.lower() == name.lower()), name)
            out[own if isinstance(one, str) else name] = content
    return {
        name: content
        for name, content in out.items()
        if not any(matches_wildcard(name, one) for one in excluded)
    }
