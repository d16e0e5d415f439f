"""Builds HTML that is escaped by default.

`tag("a", "text", href=url)` escapes its children and attributes; only `Markup` values are inserted
as they are, and only this module creates them. Addresses may not run scripts. There is no way to
insert raw HTML from a page.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from transom.kit.lazy_dataclass import dataclass

_VOID: Final = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr")
)
_ADDRESSES: Final = frozenset(("action", "formaction", "href", "src"))
_SCHEMES: Final = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML that is already escaped."""

    text: str


Child = Markup | str | int | float | None | Iterable["Child"]
Attribute = str | int | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """One element. `class_`, `for_` stand for `class`, `for`; other underscores become hyphens.

    True is an attribute without a value; None and False leave the attribute out.
    """
    head = name + "".join(
        _attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{head}>")
    return Markup(f"<{head}>{fragment(*children).text}</{name}>")


def fragment(*children: Child) -> Markup:
    """Children without an element around them."""
    return Markup("".join(_child(child) for child in children))


def with_code(text: str) -> Markup:
    """Text with `code` in backticks."""
    return fragment([tag("code", p) if at % 2 else p for at, p in enumerate(text.split("`"))])


def document(*children: Child, lang: str = "en") -> Markup:
    """A whole HTML document."""
    return Markup("<!doctype html>\n" + tag("html", *children, lang=lang).text)


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child.text
    if isinstance(child, str | int | float):
        return escape(str(child))
    return "".join(_child(one) for one in child)


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = str(value)
    if name in _ADDRESSES and not _is_safe_address(text):
        text = "#"
    return f' {name}="{escape(text)}"'


def _is_safe_address(text: str) -> bool:
    """Relative addresses and http(s) only: `javascript:` and `data:` would run in the console."""
    if text.startswith(_SCHEMES):
        return True
    return text[:1] in ("", "/", "#", "?", ".") and not text.startswith(("//", "/\\"))
