"""The pages in a real Chromium: what scripts do, that nothing is loaded from elsewhere, and that
texts from the cluster stay texts.

TRANSOM_SCREENSHOTS=FOLDER keeps a picture of each page; `make screenshots` makes those of the
documentation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster
from tests.web.pages.live import EVIL, LONG_NAME, chromium_path, running_console

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(chromium_path() is None, reason="no chromium on this machine"),
]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def tab(page_cluster: Cluster) -> Iterator[Any]:
    """A tab that is logged in. Errors of scripts and requests to other hosts fail the tests."""
    with running_console(page_cluster) as console, playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        tab = browser.new_context(base_url=console.origin).new_page()
        problems: list[str] = []
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        tab.on(
            "request",
            lambda r: (
                None if r.url.startswith((console.origin, "blob:")) else problems.append(r.url)
            ),
        )
        tab.set_viewport_size({"width": 1280, "height": 860})
        tab.goto(console.link)
        yield tab
        browser.close()
        assert problems == []


def until(tab: Any, expression: str) -> None:
    """Waits until the expression is true. Playwright's own wait evaluates it in the page, which the
    content security policy forbids.
    """
    for _ in range(400):
        if tab.evaluate(expression):
            return
        tab.wait_for_timeout(50)
    raise AssertionError(expression)


@pytest.fixture(autouse=True)
def no_script_of_the_cluster_ran(tab: Any) -> Iterator[None]:
    yield
    assert tab.evaluate("window.hacked") is None


def take_picture(tab: Any, name: str) -> None:
    folder = os.environ.get("TRANSOM_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_the_cluster_page_shows_doctors_findings(tab: Any) -> None:
    tab.goto("/cluster")
    tab.wait_for_selector("text=cannot be scheduled")
    take_picture(tab, "console-cluster")
    tab.click("#problems summary")
    assert "kubectl patch pod big" in tab.inner_text("#problems .commands"), "what repairs it"


def test_trace_steps_through_the_hops(tab: Any) -> None:
    tab.goto("/trace")
    tab.fill("input[name=from]", "node/windows-1")
    tab.fill("input[name=to]", "svc/default/web")
    tab.click("button[type=submit].primary")
    tab.wait_for_selector(".path-picture")
    assert tab.inner_text(".verdict .badge") == "dropped"
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert tab.get_attribute(".hop.chosen", "data-hop") == "2"
    assert tab.get_attribute("#hops tr.chosen", "data-hop") == "2"
    take_picture(tab, "console-trace")
    tab.click("#swap")
    assert tab.input_value("input[name=from]") == "svc/default/web"


def test_the_heat_map_opens_a_trace(tab: Any) -> None:
    tab.goto("/trace/pairs")
    take_picture(tab, "console-heat-map")
    tab.click("td.cell.bad a >> nth=0")
    tab.wait_for_selector(".verdict.bad")


def test_why_shows_the_decision(tab: Any) -> None:
    tab.goto("/why")
    tab.click("text=default/big")
    tab.wait_for_selector(".decision .rejects")
    take_picture(tab, "console-why")


def test_a_switch_changes_the_cluster(tab: Any) -> None:
    tab.goto("/why/faults")
    switch = "#windows-1 button[role=switch]:has-text('Cordon')"
    for expected in ("true", "false"):
        tab.click(switch)
        tab.wait_for_selector(f"{switch}[aria-checked={expected}]")


def test_the_timeline_can_be_scrubbed(tab: Any) -> None:
    tab.goto("/why/timeline?pod=default/web")
    tab.wait_for_selector("#entries tbody tr")
    take_picture(tab, "console-timeline")
    everything = tab.locator("#entries tbody tr").count()
    tab.fill("#scrub", "0")
    assert tab.locator("#entries tbody tr").count() == 1 < everything
    assert EVIL in tab.inner_text("#entries tbody tr"), "the oldest event, as text"
    assert tab.locator(".mark.later").count() == everything - 1


def test_lint_checks_while_typing_and_applies_fixes(tab: Any) -> None:
    tab.goto("/lint?release=1.25&build=20348")
    tab.wait_for_selector(".code-row.error .finding")
    take_picture(tab, "console-lint")
    assert tab.locator(".diff-line.removed").count() > 1
    tab.click("#apply-fixes")
    until(tab, "!document.getElementById('manifest').value.includes('privileged')")
    tab.select_option("select[name=to-release]", "1.33")
    tab.wait_for_selector("#rehearsal >> text=to Kubernetes 1.33")
    tab.select_option("select[name=to-release]", "")
    tab.fill("#manifest", f"a: [{EVIL}")
    tab.wait_for_selector("text=WIN-LINT-000")
    with tab.expect_download() as saved:
        tab.click("#save")
    assert "WIN-LINT-000" in Path(saved.value.path()).read_text()


def test_files_can_be_opened(tab: Any, tmp_path: Path) -> None:
    file = tmp_path / "evil.yaml"
    file.write_text(f"kind: Pod\nmetadata: {{name: '{EVIL}'}}\n")
    tab.goto("/lint")
    tab.set_input_files("#files", str(file))
    until(tab, "document.getElementById('manifest').value.includes('onerror')")
    tab.wait_for_selector("#summary .badge")


def test_records_are_filtered_and_opened(tab: Any) -> None:
    tab.goto("/windows?release=1.25")
    take_picture(tab, "console-windows")
    tab.fill("#filter", "privileged")
    rows = "document.querySelectorAll('#records tbody tr')"
    until(tab, f"[...{rows}].some(row => row.hidden) && [...{rows}].some(row => !row.hidden)")
    tab.goto("/windows?release=1.25&show=WIN-SEC-001#WIN-SEC-001")
    tab.wait_for_selector("#WIN-SEC-001 details[open] pre")


@pytest.mark.parametrize(
    "path",
    [
        "/trace?from=pod/default/tools&to=svc/default/web",
        "/trace/pairs",
        "/why",
        "/lint",
        "/objects/core/v1/pods",
    ],
)
def test_pages_fit_a_phone(tab: Any, path: str) -> None:
    tab.set_viewport_size({"width": 390, "height": 800})
    try:
        tab.goto(path)
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, "the page itself does not scroll sideways"
        assert all(field.is_visible() for field in tab.query_selector_all("main form input"))
    finally:
        tab.set_viewport_size({"width": 1280, "height": 860})


def test_long_names_leave_room_for_the_rest(tab: Any) -> None:
    tab.set_viewport_size({"width": 390, "height": 800})
    try:
        tab.goto("/trace/pairs")
        tab.wait_for_selector(f"text={LONG_NAME} >> nth=0")
        first_column = "document.querySelector('.heat tbody th').getBoundingClientRect().right"
        assert tab.evaluate(first_column) < 220, "cells of the heat map are on the screen"
        tab.goto(f"/objects/core/v1/pods/default/{LONG_NAME}")
        image = tab.wait_for_selector("td > code")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert image.bounding_box()["width"] > 150, "an image name is not one letter wide"
    finally:
        tab.set_viewport_size({"width": 1280, "height": 860})


# ---- phones and keyboard ----


@pytest.mark.parametrize(
    "path", ["/cluster", "/windows?show=WIN-NET-002", "/lint", "/why/scenarios", "/objects/new"]
)
def test_a_page_fits_a_phone(tab: Any, path: str) -> None:
    tab.set_viewport_size({"width": 380, "height": 760})
    tab.goto(path)
    tab.wait_for_selector("header nav a[aria-current]")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 380
    ends = (
        "[...document.querySelectorAll('header nav a')].map(a => a.getBoundingClientRect().right)"
    )
    assert max(tab.evaluate(ends)) <= 380, "every page can be reached without scrolling"


@pytest.mark.parametrize("path", ["/cluster", "/windows"])
def test_a_page_can_be_used_with_the_keyboard(tab: Any, path: str) -> None:
    tab.goto(path)
    tab.keyboard.press("Tab")
    assert tab.inner_text(":focus") == "Skip to content"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "content"
    for _ in range(6):
        tab.keyboard.press("Tab")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert tab.evaluate(outline) == "solid", "focus is visible"
    tab.focus("header nav a")
    tab.keyboard.press("?")
    assert tab.is_visible("dialog.keys")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("dialog", state="detached")


def test_an_object_is_created_in_the_browser(tab: Any) -> None:
    tab.goto("/objects/core/v1/configmaps?namespace=default")
    tab.click("#new-object")
    text = tab.input_value("#editor")
    assert text.startswith("apiVersion: v1\nkind: ConfigMap\n")
    tab.fill("#editor", text.replace("name: \n", "name: from-browser\n"))
    tab.click("button >> text=Dry run")
    tab.wait_for_selector("#outcome pre >> text=from-browser")
    tab.click("#create")
    tab.wait_for_url("**/configmaps/default/from-browser")


def test_a_scenario_is_switched_on_and_off(tab: Any) -> None:
    tab.goto("/why/scenarios")
    switch = "#mac-spoofing [role=switch]"
    tab.click(switch)
    tab.wait_for_selector(f"{switch}[aria-checked=true]")
    tab.wait_for_selector("#scenarios[data-phase=on]", timeout=60_000)
    tab.click(switch)
    tab.wait_for_selector("#scenarios[data-phase=off]", timeout=60_000)
