"""The pages of the console, in the order of the navigation. A new page is one line here."""

from __future__ import annotations

from typing import Final

from transom.web.pages import cluster, lint, objects, trace, why, windows
from transom.web.routing import Page

PAGES: Final[tuple[Page, ...]] = (
    cluster.PAGE,
    objects.PAGE,
    trace.PAGE,
    why.PAGE,
    lint.PAGE,
    windows.PAGE,
)
