import pytest

from transom.kubelet.expansion import (
    MissingValue,
    expand_strictly,
    expand_variables,
    variable_mapping,
)

VALUES = {"A": "a", "B": "$(A)", "EMPTY": "", "C-D": "dash"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("$(A)", "a"),
        ("x$(A)y$(A)z", "xayaz"),
        ("$(B)", "$(A)"),  # once only
        ("$(NOBODY)", "$(NOBODY)"),
        ("$(EMPTY)|", "|"),
        ("$(C-D)", "dash"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$a"),
        ("$$$$(A)", "$$(A)"),
        ("$$A", "$A"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$((A))", "$((A))"),
        ("end$", "end$"),
        ("$", "$"),
        ("$$", "$"),
        ("$()", "$()"),
        ("$.$(A)", "$.a"),
    ],
)
def test_references(text: str, expanded: str) -> None:
    assert expand_variables(text, variable_mapping(VALUES)) == expanded


def test_the_first_source_wins() -> None:
    assert (
        expand_variables("$(A) $(X)", variable_mapping({"A": "own"}, {"A": "service", "X": "x"}))
        == "own x"
    )


def test_sub_paths_need_every_value() -> None:
    assert expand_strictly("logs/$(A)", VALUES) == "logs/a"
    with pytest.raises(MissingValue, match=r"^missing value for EMPTY, Z$"):
        expand_strictly("$(Z)/$(EMPTY)/$(A)", VALUES)
