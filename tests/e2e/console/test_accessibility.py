"""axe finds nothing on the console's pages, in light and dark."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from tests.e2e.console.conftest import ConsoleProcess

pytest.importorskip("axe_playwright_python", reason="axe is not installed")
pytestmark = [pytest.mark.e2e, pytest.mark.loop_budget(None)]

_NODE = "/objects/core/v1/nodes/-/windows-1"
_PHONE = {"width": 390, "height": 800}
_PAGES = (
    ("/cluster", ""),
    ("/cluster", "#show-table"),
    ("/objects", ""),
    *((f"{_NODE}#{tab}", "") for tab in ("overview", "events", "terminal", "owners", "fields")),
    (f"{_NODE}#yaml", "#edit"),
    ("/objects/new", ""),
    ("/trace?from=node/windows-1&to=svc/kubernetes", ""),
    ("/trace/flows", ""),
    ("/trace/pairs", ""),
    ("/trace/hns?node=windows-1", "details:not([open]) > summary >> nth=0"),
    ("/why", ""),
    ("/why/doctor", ""),
    ("/why/scenarios", ""),
    ("/why/faults", ""),
    ("/why/timeline", "#entries th >> nth=0"),
    ("/lint?release=1.25&build=20348", "#result .diff"),
    ("/windows?show=WIN-NET-002#WIN-NET-002", ""),
    ("/nowhere", ""),
)


def _violations(page: Any) -> list[str]:
    # Evaluated by the browser's own interface, so that the content security policy stays as it is.
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {[node['target'] for node in one['nodes']]}" for one in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_pages_are_accessible(
    new_page: Callable[..., Any], console: ConsoleProcess, scheme: str, phone: bool
) -> None:
    page = new_page(color_scheme=scheme)
    if phone:
        page.set_viewport_size(_PHONE)
    page.goto(f"{console.origin}/login")
    assert _violations(page) == []
    page.goto(console.new_link())
    problems = {}
    for path, click in _PAGES:
        page.goto("about:blank")  # a new fragment alone would not load the page again
        page.goto(console.origin + path)
        if path.startswith(("/cluster", "/objects")) and "new" not in path:
            page.wait_for_selector('#live[data-state="live"]')
        if click:
            page.click(click)
        if found := _violations(page):
            problems[path + click] = found
    assert problems == {}
