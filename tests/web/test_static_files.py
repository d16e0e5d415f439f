"""The console's scripts and styles: nothing from other hosts, nothing that parses HTML."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import transom.web
from transom.web.page_table import PAGES

STATIC = Path(transom.web.__file__).parent / "static"
FILES = sorted(STATIC.iterdir())
_FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|"
    r"DOMParser|createContextualFragment|srcdoc|importScripts"
)
_OTHER_HOST = re.compile(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[a-z0-9.-]+\.[a-z]{2,}", re.I)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file_is_self_contained(path: Path) -> None:
    text = path.read_text()
    assert _FORBIDDEN.search(text) is None
    assert _OTHER_HOST.search(text.replace("http://www.w3.org/2000/svg", "")) is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_has_its_script(page: object) -> None:
    assert (STATIC / f"{page.name}.js").is_file()  # type: ignore[attr-defined]


def test_scripts_import_files_that_exist() -> None:
    for path in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert (STATIC / name).is_file(), (path.name, name)


def test_routes_are_unique() -> None:
    routes = [(route.method, route.pattern) for page in PAGES for route in page.routes]
    assert len(routes) == len(set(routes))
