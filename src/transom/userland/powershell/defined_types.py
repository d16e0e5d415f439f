"""The classes and enums that a script defines."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.userland.powershell.tree import ClassMember
from transom.userland.powershell.values import VariableScope


class MethodScope(VariableScope):
    """The variables of a method that runs. Its output is what it returns."""

    result: Any = None


@dataclass(slots=True)
class DefinedType:
    name: str
    values: dict[str, int] | None  # of an enum, by name
    members: tuple[ClassMember, ...] = ()
    base: DefinedType | None = None
    statics: dict[str, Any] = field(default_factory=dict)

    def own_methods(self, name: str, static: bool) -> list[ClassMember]:
        return [
            one
            for one in self.members
            if one.script is not None and one.name.lower() == name.lower() and one.static == static
        ]

    def methods(self, name: str, static: bool) -> list[ClassMember]:
        """Own ones before those of the base class."""
        own = self.own_methods(name, static)
        return own or (self.base.methods(name, static) if self.base is not None else [])

    def properties(self) -> list[ClassMember]:
        inherited = self.base.properties() if self.base is not None else []
        return inherited + [one for one in self.members if one.script is None and not one.static]
