"""Reports in the forms that people and machines read. Each form is a function from a report to a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transom.lint.engine import Report
from transom.lint.output import github, json, junit, sarif

# The form for people is `text`, which wants to know of colours.
MACHINE: Final[dict[str, Callable[[Report], str]]] = {
    "json": json.render, "sarif": sarif.render, "github": github.render, "junit": junit.render,
}
FORMS: Final = ("text", *MACHINE)
