"""Classes of `kit.named_tuple` behave like those of `typing`."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from transom.kit import named_tuple


def make(base: Any) -> Any:
    class Point(base):  # type: ignore[misc]
        """A point."""

        x: int
        tags: list[Unknown] | None = None  # type: ignore[name-defined]  # noqa: F821

        def shifted(self, by: int) -> Any:
            return self._replace(x=self.x + by)

        @property
        def double(self) -> int:
            return self.x * 2

        @classmethod
        def origin(cls) -> Any:
            return cls(0)

    return Point


def signature(kind: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(kind).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


CASES: dict[str, Callable[[Any], Any]] = {
    "text": lambda k: repr(k(1)),
    "fields": lambda k: (k._fields, k._field_defaults, k.__match_args__),
    "bases": lambda k: k.__bases__,
    "names": lambda k: (k.__name__, k.__doc__, k.__module__, k.__qualname__),
    "no other attributes": lambda k: hasattr(k(1), "__dict__"),
    "methods": lambda k: (k(1).shifted(2), k(3).double, k.origin()),
    "a copy": lambda k: copy.deepcopy(k(1, ["a"])),
    "as a dictionary": lambda k: k(1)._asdict(),
    "equality with a tuple": lambda k: k(1) == (1, None),
    "another with the same constructor": lambda k: (k(1), k(2, ["b"]), k(tags=None, x=3)),
    "made from a list": lambda k: k._make([1, None]),
    "made from too long a list": lambda k: k._make([1, 2, 3]),
    "a replaced field that is unknown": lambda k: k(1)._replace(no=2),
    "the signature": lambda k: (k(1), signature(k))[1],
    "an alias": lambda k: k.x.__doc__,
    "a subclass": lambda k: (type("Sub", (k,), {})(1), type("Sub", (k,), {})(1)._replace(x=2)),
    "a missing argument": lambda k: k(),
    "an unknown argument": lambda k: k(1, no=2),
    "an unknown attribute": lambda k: k(1).nothing,
    "assignment": lambda k: setattr(k(1), "x", 2),
}


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("case", CASES)
def test_behaves_like_typing(case: str) -> None:
    expected = outcome(lambda: CASES[case](make(typing.NamedTuple)))
    assert outcome(lambda: CASES[case](make(named_tuple.NamedTuple))) == expected


class Stored(named_tuple.NamedTuple):
    name: str
    nested: tuple[Stored, ...] = ()


def test_annotations_can_be_evaluated() -> None:
    assert typing.get_type_hints(Stored) == {"name": str, "nested": tuple[Stored, ...]}


def test_can_be_pickled() -> None:
    stored = Stored("a", (Stored("b"),))
    assert pickle.loads(pickle.dumps(stored)) == stored


@pytest.mark.parametrize("base", [typing.NamedTuple, named_tuple.NamedTuple])
def test_a_tuple_may_be_empty_or_have_one_field(base: Any) -> None:
    class Empty(base):  # type: ignore[misc]
        pass

    class One(base):  # type: ignore[misc]
        x: int

    assert (Empty(), One(1), One(1).x) == ((), (1,), 1)


@pytest.mark.parametrize("base", [typing.NamedTuple, named_tuple.NamedTuple])
def test_a_field_is_not_private(base: Any) -> None:
    with pytest.raises(ValueError, match="underscore"):

        class Wrong(base):  # type: ignore[misc]
            _x: int


@pytest.mark.parametrize("base", [typing.NamedTuple, named_tuple.NamedTuple])
def test_a_field_without_a_default_cannot_follow_one_with_a_default(base: Any) -> None:
    with pytest.raises(TypeError, match="default"):

        class Wrong(base):  # type: ignore[misc]
            x: int = 1
            y: int


@pytest.mark.parametrize("base", [typing.NamedTuple, named_tuple.NamedTuple])
def test_the_constructor_cannot_be_replaced(base: Any) -> None:
    with pytest.raises(AttributeError, match="Cannot overwrite NamedTuple attribute __new__"):

        class Wrong(base):  # type: ignore[misc]
            x: int

            def __new__(cls, x: int) -> Any:
                return x
