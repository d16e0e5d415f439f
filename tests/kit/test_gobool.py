from __future__ import annotations

import pytest

from transom.kit.gobool import parse_go_bool


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true(text: str) -> None:
    assert parse_go_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_false(text: str) -> None:
    assert parse_go_bool(text) is False


@pytest.mark.parametrize("text", ["", "tRUE", "yes", " true", "2"])
def test_other_texts_are_invalid(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_go_bool(text)
    assert str(caught.value) == f'strconv.ParseBool: parsing "{text}": invalid syntax'
