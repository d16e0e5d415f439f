"""Caches whose keys clients choose: bounded by the size of the keys, not only by their number."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper, wraps
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _TextCache(dict[Any, Any]):
    """The results of a function of one text. Known texts are found without running Python code."""

    def __init__(self, function: FunctionType, maxsize: int, longest: int) -> None:
        self._function = function
        self._maxsize = maxsize
        self._longest = longest
        update_wrapper(self, function)

    __call__ = dict.__getitem__

    def __missing__(self, text: Any) -> Any:
        value = self._function(text)
        if len(text) <= self._longest:
            if len(self) >= self._maxsize:
                self.clear()
            self[text] = value
        return value

    def cache_size(self) -> int:
        return len(self)

    def cache_clear(self) -> None:
        self.clear()


def text_cache(maxsize: int, longest: int = 512) -> Callable[[F], F]:
    """Like `lru_cache`, for functions whose first argument is a string. Strings longer than
    `longest` are not cached: a few thousand of them would take gigabytes.
    """

    def decorate(function: F) -> F:
        if isinstance(function, FunctionType) and _argument_count(function) == 1:
            return _TextCache(function, maxsize, longest)  # type: ignore[return-value]
        cached: Any = lru_cache(maxsize)(function)

        def call(text: Any, *args: Any, **kwargs: Any) -> Any:
            if len(text) > longest:
                return function(text, *args, **kwargs)
            return cached(text, *args, **kwargs)

        wrapped: Any = wraps(function)(call)
        wrapped.cache_size = lambda: cached.cache_info().currsize
        wrapped.cache_clear = cached.cache_clear
        return wrapped

    return decorate


def _argument_count(function: FunctionType) -> int:
    return function.__code__.co_argcount + function.__code__.co_kwonlyargcount
