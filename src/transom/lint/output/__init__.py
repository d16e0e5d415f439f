"""Report formats for people and machines. Each format is a function from a report to a string."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transom.lint.engine import LintReport
from transom.lint.output import github, json, junit, sarif

# The human-readable format is `text`, which also takes the colour setting.
MACHINE: Final[dict[str, Callable[[LintReport], str]]] = {
    "json": json.render_json,
    "sarif": sarif.render_sarif,
    "github": github.render_github,
    "junit": junit.render_junit,
}
