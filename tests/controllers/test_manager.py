"""The choice of controllers."""

from __future__ import annotations

import pytest

from transom.controllers.manager import ControllerRow, UnknownController, selected_controllers

TABLE = tuple(
    ControllerRow(name, name, lambda _env: None, on)
    for name, on in (("a", True), ("b", True), ("c", False))
)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["*"], "ab"),
        (["*", "-a"], "b"),
        (["*", "c"], "abc"),
        (["c"], "c"),
        (["-a"], ""),
        (["a", "-a"], ""),
        ([], ""),
    ],
)
def test_selection(wanted: list[str], names: str) -> None:
    assert "".join(row.name for row in selected_controllers(wanted, TABLE)) == names


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownController, match='"d" is not in the list of known controllers'):
        selected_controllers(["*", "-d"], TABLE)
