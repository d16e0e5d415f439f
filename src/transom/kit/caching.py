"""Caches whose keys clients choose: bounded by the size of the keys, not only by their number."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _argument_count(function: FunctionType) -> int:
    return function.__code__.co_argcount + function.__code__.co_kwonlyargcount


def text_cache(maxsize: int, longest: int = 512) -> Callable[[F], F]:
    """Like `lru_cache`, for functions whose first argument is a string. Strings longer than
    `longest` are not cached: a few thousand of them would take gigabytes.
    """

    def decorate(function: F) -> F:
        cached: Any = lru_cache(maxsize)(function)

        def call_with_text(text: Any) -> Any:
            return cached(text) if len(text) <= longest else function(text)

        def call_with_more(text: Any, *args: Any, **kwargs: Any) -> Any:
            if len(text) > longest:
                return function(text, *args, **kwargs)
            return cached(text, *args, **kwargs)

        one = isinstance(function, FunctionType) and _argument_count(function) == 1
        call = wraps(function)(call_with_text if one else call_with_more)
        call.cache_info = cached.cache_info  # type: ignore[attr-defined]
        call.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate
