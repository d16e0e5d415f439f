"""Links between the pages lead somewhere, in the repository and on the site; no page is missing in
the site's navigation. mkdocs checks the same in `make site`; these tests need neither it nor a network.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs import pages
from tools.site_pages import OUTSIDE, ROOT, site_page

_FENCE = re.compile(r"^ *```.*?^ *```[ \t]*$", re.S | re.M)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.M)
_ALL = [*pages.pages(), "SECURITY.md"]


def _prose(text: str) -> str:
    return _FENCE.sub("", text)


def _links(text: str) -> Iterator[tuple[str, str]]:
    """Path and anchor of the links that stay in the repository."""
    for target in _LINK.findall(_CODE.sub("", _prose(text))):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def _plain_heading(heading: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")


def _github_anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", _plain_heading(heading).lower()).replace(" ", "-")


def _site_anchor(heading: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", _plain_heading(heading)).encode("ascii", "ignore")
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_text.decode()).strip().lower())


@cache
def _anchors(path: Path) -> frozenset[str]:
    headings = _HEADING.findall(_prose(path.read_text()))
    return frozenset(
        anchor
        for anchor in map(_github_anchor, headings)
        if anchor in {_site_anchor(heading) for heading in headings}
    )


def _broken(text: str, folder: Path) -> list[str]:
    found = []
    for path, anchor in _links(text):
        target = (folder / path).resolve() if path else None
        if target is not None and not target.exists():
            found.append(f"{path}: no such file")
        elif anchor and target is not None and anchor not in _anchors(target):
            found.append(f"{path}#{anchor}: no such heading")
    return found


@pytest.mark.parametrize("page", _ALL)
def test_links_lead_to_files_and_headings(page: str) -> None:
    path = ROOT / page
    assert _broken(path.read_text(), path.parent) == []
    own = {f"#{a}" for p, a in _links(path.read_text()) if not p} - {
        f"#{a}" for a in _anchors(path)
    }
    assert own == set(), "no such heading on this page"


@pytest.mark.parametrize("page", _ALL)
def test_links_of_the_site_lead_to_pages_of_the_site(page: str) -> None:
    place = OUTSIDE.get(page, page.removeprefix("docs/"))
    text = site_page((ROOT / page).read_text(), place)
    for path, _ in _links(text):
        if path:
            target = (Path("/") / place).parent.joinpath(path).resolve().relative_to("/")
            known = str(target) in OUTSIDE.values() or (ROOT / "docs" / target).is_file()
            assert known, f"{page}: {path} is not part of the site"
    assert "<!-- test:" not in text


def _navigation() -> list[str]:
    found: list[str] = []

    def visit(entry: Any) -> None:
        if isinstance(entry, str):
            found.append(entry)
        else:
            for inner in entry.values() if isinstance(entry, dict) else entry:
                visit(inner)

    visit(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    expected = [OUTSIDE.get(page, page.removeprefix("docs/")) for page in _ALL]
    assert sorted(_navigation()) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("[a](trace.md#all-flows-at-once) [b](https://example.com) `[c](none.md)`", []),
        ("[a](none.md)", ["none.md: no such file"]),
        ("[a](trace.md#none)", ["trace.md#none: no such heading"]),
        ("```text\n[a](none.md)\n```\n![b](none.svg)", ["none.svg: no such file"]),
    ],
)
def test_broken_links_are_found(text: str, problems: list[str]) -> None:
    assert _broken(text, ROOT / "docs") == problems
