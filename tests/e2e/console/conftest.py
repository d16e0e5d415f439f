"""A real Chromium, driven by Playwright, in front of `transom console` of a mixed cluster.

`screenshots/` gets a picture of each page where TRANSOM_SCREENSHOTS names a folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from tests.conftest import Cluster

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class ConsoleProcess:
    """A `transom console` that runs; each Enter gives a new login link."""

    process: subprocess.Popen[str]
    links: list[str]

    @property
    def origin(self) -> str:
        return self.links[0].partition("/login")[0]

    def new_link(self) -> str:
        if self.links[1:]:
            return self.links.pop()
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n")
        stdin.flush()
        return _read_link(stdout)


def _read_link(output: IO[str]) -> str:
    for line in output:
        if found := re.search(r"http\S+/login\?token=\S+", line):
            return found[0]
    raise AssertionError("the console printed no login link")


@contextmanager
def running_console(cluster: Cluster, *options: str) -> Iterator[ConsoleProcess]:
    command = [sys.executable, "-m", "transom.cli.main", "console", *options]
    process = subprocess.Popen(
        command, env=cluster.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        first = _read_link(process.stdout)
        yield ConsoleProcess(process, [first, first])
    finally:
        process.terminate()
        assert process.wait(10) == 0
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def wait_until(page: Any, expression: str, seconds: float = 20.0) -> None:
    """Waits until an expression is true in the page. Playwright's own function evaluates it in a way
    that the console's content security policy forbids.
    """
    for _ in range(int(seconds * 20)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser. Playwright runs an event loop in this thread, so it must stop before tests of other
    modules use theirs.
    """
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on this machine: `.ci/tools` installs it")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def console(mixed_cluster: Cluster) -> Iterator[ConsoleProcess]:
    with running_console(mixed_cluster) as running:
        yield running


@pytest.fixture
def new_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages in contexts of their own; a test fails if a script of a page failed."""
    contexts: list[Any] = []
    problems: list[str] = []

    def open_page(**options: Any) -> Any:
        context = chromium.new_context(viewport={"width": 1360, "height": 850}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def page(new_page: Callable[..., Any], console: ConsoleProcess) -> Any:
    """A page that is logged in to the console of the mixed cluster."""
    opened = new_page()
    opened.goto(console.new_link())
    return opened


@pytest.fixture
def take_screenshot() -> Callable[[Any, str], None]:
    folder = os.environ.get("TRANSOM_SCREENSHOTS", "")

    def take(page: Any, name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=f"{folder}/{name}.png")

    return take
