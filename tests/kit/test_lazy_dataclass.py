"""Classes of `kit.lazy_dataclass` behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from transom.kit import lazy_dataclass

Decorate = Callable[..., Any]


def make(dataclass: Decorate, frozen: bool, eq: bool = True) -> dict[str, Any]:
    """The same classes, declared with one of the two decorators."""

    @dataclass(slots=True, frozen=frozen, eq=eq)
    class Point:
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list, compare=False)
        hidden: str = field(default="h", repr=False)
        label: str = field(default="", kw_only=True)
        derived: int = field(init=False, default=7)
        kind: ClassVar[str] = "point"

        def total(self) -> int:
            return self.x + self.y

    @dataclass(slots=True, frozen=frozen, eq=eq)
    class Deep(Point):
        """With a field more, and its own text."""

        z: int = 3

        def __repr__(self) -> str:
            return f"Deep {self.z}"

    @dataclass(slots=True, frozen=frozen, eq=eq)
    class Checked:
        text: str
        length: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", len(self.text))

    @dataclass(slots=True, frozen=frozen, eq=eq)
    class Keyed:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    @dataclass(slots=True, frozen=frozen, eq=eq)
    class Empty:
        pass

    return {"Point": Point, "Deep": Deep, "Checked": Checked, "Keyed": Keyed, "Empty": Empty}


def outcome(run: Callable[[], Any]) -> Any:
    """What a call returns, or its error."""
    try:
        return run()
    except Exception as error:
        text = str(error).partition("() ")[2] or str(error)  # without the name of the function
        return type(error), text


CASES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "default values": lambda k: repr(k["Point"](1)),
    "all arguments": lambda k: repr(k["Point"](1, 3, ["a"], "x", label="l")),
    "keyword arguments": lambda k: repr(k["Point"](y=1, x=2)),
    "a missing argument": lambda k: k["Point"](),
    "an unknown argument": lambda k: k["Point"](1, no=2),
    "a keyword-only argument by position": lambda k: k["Point"](1, 2, [], "h", "l"),
    "its own text": lambda k: repr(k["Deep"](1)),
    "a method": lambda k: k["Deep"](1).total(),
    "inherited fields": lambda k: [f.name for f in dataclasses.fields(k["Deep"])],
    "a class variable": lambda k: k["Point"].kind,
    "slots": lambda k: [k[name].__slots__ for name in k],
    "match arguments": lambda k: [k[name].__match_args__ for name in k],
    "no other attributes": lambda k: hasattr(k["Point"](1), "__dict__"),
    "a hook after __init__": lambda k: k["Checked"]("four").length,
    "a list of its own": lambda k: k["Point"](1).tags is k["Point"](1).tags,
    "equal": lambda k: k["Point"](1) == k["Point"](1, tags=["ignored"]),
    "different": lambda k: k["Point"](1) == k["Point"](2),
    "other classes are different": lambda k: k["Point"](1) == k["Deep"](1),
    "its own comparison": lambda k: k["Keyed"](1) == k["Keyed"](2),
    "its own hash": lambda k: hash(k["Keyed"](1)),
    "no fields": lambda k: (k["Empty"]() == k["Empty"](), repr(k["Empty"]())),
    "equal hashes": lambda k: len(
        {hash(point) for point in (k["Point"](1), k["Point"](1, tags=["ignored"]))}
    ),
    "an element of a set": lambda k: len({k["Deep"](1), k["Deep"](1, z=4)}),
    "assignment": lambda k: setattr(k["Point"](1), "x", 5),
    "assignment to the inherited": lambda k: setattr(k["Deep"](1), "x", 5),
    "deletion": lambda k: delattr(k["Point"](1), "x"),
    "an unknown attribute": lambda k: k["Point"](1).nothing,
    "replace": lambda k: repr(dataclasses.replace(k["Point"](1, label="l"), y=9)),
    "replace a derived field": lambda k: dataclasses.replace(k["Point"](1), derived=9),
    "as a dictionary": lambda k: dataclasses.asdict(k["Deep"](1)),
    "a copy": lambda k: repr(copy.copy(k["Point"](1, 8))),
    "a deep copy": lambda k: repr(copy.deepcopy(k["Point"](1, 8, ["t"]))),
    "names": lambda k: [(k[name].__name__, k[name].__qualname__, k[name].__module__) for name in k],
    "a docstring": lambda k: k["Deep"].__doc__,
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("eq", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_behaves_like_the_standard_library(case: str, frozen: bool, eq: bool) -> None:
    expected = outcome(lambda: CASES[case](make(dataclasses.dataclass, frozen, eq)))
    assert outcome(lambda: CASES[case](make(lazy_dataclass.dataclass, frozen, eq))) == expected


@pytest.mark.parametrize("decorate", [dataclasses.dataclass, lazy_dataclass.dataclass])
@pytest.mark.parametrize("frozen", [False, True])
def test_replace_behaves_like_the_one_of_the_standard_library(
    decorate: Decorate, frozen: bool
) -> None:
    kinds = make(decorate, frozen)
    objects = [
        kinds["Point"](1, 3, ["a"], "x", label="l"),
        kinds["Deep"](1),
        kinds["Checked"]("four"),
        kinds["Empty"](),
    ]
    for obj in objects:
        for changes in ({}, {"x": 5, "tags": ["b"]}, {"text": "other"}, {"derived": 9}, {"no": 1}):

            def fields(replace: Any, obj: Any = obj, changes: Any = changes) -> Any:
                made = replace(obj, **changes)
                return type(made), dataclasses.asdict(made)

            expected = outcome(lambda: fields(dataclasses.replace))
            found = outcome(lambda: fields(lazy_dataclass.replace))
            if isinstance(expected[0], type) and issubclass(expected[0], Exception):
                assert issubclass(found[0], TypeError | ValueError)
            else:
                assert found == expected


def test_replace_shares_unchanged_values() -> None:
    first = Stored("a", (Stored("b"),))
    assert lazy_dataclass.replace(first, name="c").nested is first.nested


@lazy_dataclass.dataclass(slots=True, frozen=True)
class Stored:
    name: str
    nested: tuple[Stored, ...] = ()


def test_can_be_pickled() -> None:
    stored = Stored("a", (Stored("b"),))
    assert pickle.loads(pickle.dumps(stored)) == stored


def test_shows_a_recursive_object() -> None:
    @lazy_dataclass.dataclass(slots=True)
    class Node:
        children: list[Any]

    node = Node([])
    node.children.append(node)
    assert repr(node).endswith("Node(children=[...])")


def test_compiles_init_with_the_first_object() -> None:
    @lazy_dataclass.dataclass(slots=True)
    class Late:
        x: int

    declared = Late.__init__
    assert Late(1).x == 1
    compiled = Late.__init__
    assert compiled is not declared
    Late(2)
    assert Late.__init__ is compiled


def test_a_subclass_without_fields_uses_the_inherited_init() -> None:
    @lazy_dataclass.dataclass(slots=True)
    class Base:
        x: int

    class Derived(Base):
        pass

    assert (Derived(3).x, Base(4).x) == (3, 4)
