"""Help fits the terminal."""

from __future__ import annotations

import pytest

from transom.cli.help import fill_paragraphs
from transom.cli.main import VERBS, make_parser, overview


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_paragraphs_of_the_help_fit(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for verb in VERBS:
        description, _, _ = make_parser(verb)[0].format_help().partition("\noptions:")
        text = description.partition("\n\n")[2]  # after the usage, whose options may be long
        wide = [line for line in text.splitlines() if len(line) > columns and line[:1] != " "]
        assert not wide, (verb, wide)


def test_the_list_of_verbs_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    verbs = overview().partition("\nexamples:")[0]
    assert max(map(len, verbs.splitlines())) <= 60
    assert all(f"  {verb}" in verbs for verb in VERBS)


def test_indented_lines_stay_as_they_are() -> None:
    text = "One paragraph\nof two lines.\n\n  a    list\n  b    entry that is long\nAnother."
    assert fill_paragraphs(text, 20) == (
        "One paragraph of two\nlines.\n\n  a    list\n  b    entry that is long\nAnother."
    )
