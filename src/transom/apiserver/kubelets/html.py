"""Rewrites links in a proxied HTML page to paths of the proxy.

Start tags are rewritten, everything else is unchanged: byte for byte like Kubernetes' proxy.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from html.entities import html5

# The attributes of elements that contain URLs.
_LINKS = {
    "a": ("href",),
    "applet": ("codebase",),
    "area": ("href",),
    "audio": ("src",),
    "base": ("href",),
    "blockquote": ("cite",),
    "body": ("background",),
    "button": ("formaction",),
    "command": ("icon",),
    "del": ("cite",),
    "embed": ("src",),
    "form": ("action",),
    "frame": ("longdesc", "src"),
    "head": ("profile",),
    "html": ("manifest",),
    "iframe": ("longdesc", "src"),
    "img": ("longdesc", "src", "usemap"),
    "input": ("src", "usemap", "formaction"),
    "ins": ("cite",),
    "link": ("href",),
    "object": ("classid", "codebase", "data", "usemap"),
    "q": ("cite",),
    "script": ("src",),
    "source": ("src",),
    "video": ("poster", "src"),
}
# Elements whose content is not markup.
_RAW = {
    name: re.compile(rf"</{name}[ \n\r\t\f/>]", re.IGNORECASE)
    for name in (
        "iframe",
        "noembed",
        "noframes",
        "noscript",
        "plaintext",
        "script",
        "style",
        "textarea",
        "title",
        "xmp",
    )
}
_SPACE = r"[ \n\r\t\f]"
_MARKUP = re.compile(r"<(?:(?P<tag>[a-zA-Z])|(?P<comment>!--)|[!?/])")
_COMMENT_END = re.compile(r"--!?>")
_NAME = re.compile(r"[^ \n\r\t\f/>]*")
_BLANKS = re.compile(rf"{_SPACE}*")
_KEY = re.compile(rf"([^ \n\r\t\f/=>]*)(?:{_SPACE}|/)?")
_VALUE = re.compile(
    rf"{_SPACE}*={_SPACE}*(?:\"(?P<d>[^\"]*)\"|'(?P<s>[^']*)'|(?=>)|(?P<u>[^ \n\r\t\f>\"'][^ "
    r"\n\r\t\f>]*))"
)
_ENTITY = re.compile(r"&(?:#[xX][0-9a-fA-F]+;?|#[0-9]+;?|([A-Za-z][A-Za-z0-9]*;?))(=?)")
_ESCAPES = str.maketrans(
    {"&": "&amp;", "'": "&#39;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "\r": "&#13;"}
)

Rewrite = Callable[[str], str]


def rewrite_html(page: str, address: Rewrite) -> str:
    out: list[str] = []
    at = 0
    while (found := _MARKUP.search(page, at)) is not None:
        start = found.start()
        if found["tag"] is None:
            end = _end_of_markup(page, found)
            out.append(page[at:end])
            at = end
            continue
        out.append(page[at:start])
        tag = _read_tag(page, start + 1)
        if tag is None:
            return "".join(out)  # the page ends inside a tag
        name, attributes, at = tag
        out.append(_write_tag(name, attributes, page[at - 2] == "/", address))
        if name in _RAW:
            end = _end_of_raw(page, at, name)
            out.append(page[at:end])
            at = end
    out.append(page[at:])
    return "".join(out)


def _end_of_markup(page: str, found: re.Match[str]) -> int:
    """The end of a comment, a declaration or an end tag."""
    if found["comment"] is None:
        closed = page.find(">", found.end())
        return closed + 1 if closed >= 0 else len(page)
    after = found.end()
    for short in (">", "->"):
        if page.startswith(short, after):
            return after + len(short)
    closing = _COMMENT_END.search(page, after)
    return closing.end() if closing is not None else len(page)


def _end_of_raw(page: str, at: int, name: str) -> int:
    if name == "plaintext":
        return len(page)
    closing = _RAW[name].search(page, at)
    return closing.start() if closing is not None else len(page)


def _read_tag(page: str, at: int) -> tuple[str, list[tuple[str, str]], int] | None:
    """The name, the attributes and the end of the tag; None if it is incomplete."""
    name = _NAME.match(page, at)
    assert name is not None
    attributes: list[tuple[str, str]] = []
    at = name.end()
    while True:
        at = _after(_BLANKS, page, at)
        if at >= len(page):
            return None
        if page[at] == ">":
            return name[0].lower(), attributes, at + 1
        key = _KEY.match(page, at)
        assert key is not None
        at = key.end()
        value = _VALUE.match(page, at)
        text = ""
        if value is not None:
            at = value.end()
            text = next((v for v in (value["d"], value["s"], value["u"]) if v is not None), "")
        elif page.startswith("=", _after(_BLANKS, page, at)):
            return None  # an unterminated value
        if key[1]:
            attributes.append(
                (key[1].lower(), _unescape(text.replace("\r\n", "\n").replace("\r", "\n")))
            )


def _after(pattern: re.Pattern[str], page: str, at: int) -> int:
    found = pattern.match(page, at)
    return found.end() if found is not None else at


def _write_tag(name: str, attributes: list[tuple[str, str]], closed: bool, address: Rewrite) -> str:
    links = _LINKS.get(name, ())
    pairs = "".join(
        f' {key}="{(address(value) if key in links else value).translate(_ESCAPES)}"'
        for key, value in attributes
    )
    return f"<{name}{pairs}{'/>' if closed else '>'}"


def _unescape(text: str) -> str:
    return _ENTITY.sub(_entity, text) if "&" in text else text


def _entity(found: re.Match[str]) -> str:
    name, follows = found[1], found[2]
    if name is None:
        return html.unescape(found[0][: len(found[0]) - len(follows)]) + follows
    if name not in html5 or (follows and not name.endswith(";")):
        return found[0]  # more likely part of a query
    return html5[name] + follows
