"""Deferred imports: a module that is imported at its first use, or a function at its first call;
and regular expressions that are compiled at their first use.

For code that most runs never reach and that is slow to import, so that a cluster starts quickly.
The only way to import a module late, except in `cli/`. Import the same name under
TYPE_CHECKING, so that mypy and the import contracts see the dependency (docs/architecture.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, AnyStr, cast

from transom.kit.garbage import pause_collections


def lazy_function(module: str, name: str) -> Callable[..., Any]:
    """The function `name` of `module`, which is imported when it is first called."""

    @cache
    def load() -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return load()(*args, **kwargs)

    return call


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # later lookups do not call this method
        return value


def lazy_import(module: str) -> ModuleType:
    """A placeholder for the module, which is imported on first attribute access."""
    return _LazyModule(module)


def load_modules(*modules: ModuleType) -> None:
    """Imports what `lazy_import` deferred: in a thread, before the event loop needs it."""
    with pause_collections():
        for module in modules:
            import_module(module.__name__)


def load_submodule(package: str, name: str) -> ModuleType:
    """A module of the caller's own package that a table names."""
    return import_module(f"{package}.{name}")


class _LazyPattern:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self.flags = flags

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The method, also where it is stored before its first call."""
        if name.startswith("_"):
            raise AttributeError(name)

        def first_call(*args: Any, **kwargs: Any) -> Any:
            method = vars(self).get(name)
            if method is None:
                method = getattr(re.compile(self.pattern, self.flags), name)
                setattr(self, name, method)
            return method(*args, **kwargs)

        return first_call


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Like `re.compile`, but compiles at the first call of a method. Use it for the constants of
    modules that a cluster imports at its start: a long expression takes milliseconds.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))
