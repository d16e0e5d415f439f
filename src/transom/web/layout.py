"""The frame of every page: head, navigation, identity, footer."""

from __future__ import annotations

from collections.abc import Sequence

from transom import __version__
from transom.http.messages import HttpResponse
from transom.web.markup import Child, Markup, document, fragment, tag
from transom.web.responses import html_response
from transom.web.routing import Page, PageRequest


def bare_page(title: str, *body: Child, scripts: tuple[str, ...] = (), csrf: str = "") -> Markup:
    """A page without navigation: login and errors before login."""
    return document(
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="csrf-token", content=csrf) if csrf else None,
            tag("title", f"{title} · Transom"),
            tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
            tag("link", rel="stylesheet", href="/static/console.css"),
            [tag("script", type="module", src=f"/static/{name}") for name in scripts],
        ),
        tag("body", *body),
    )


def page_response(
    request: PageRequest,
    page: Page,
    *body: Child,
    title: str = "",
    script: str = "",
    status: int = 200,
) -> HttpResponse:
    """A page in the console's frame; it loads `static/NAME.js` of its page, or another `script`.

    `title` is for details ("Pod web-0"); the name of the page is the default.
    """
    scripts = (script or f"{page.name}.js",)
    return _framed(request, page.path, title or page.title, body, scripts, status)


def error_page(request: PageRequest, status: int, heading: str, message: str) -> HttpResponse:
    body = tag(
        "div", tag("h1", heading), tag("p", message, role="alert", class_="problem"), class_="prose"
    )
    return _framed(request, "", heading, (body,), (), status)


def _framed(
    request: PageRequest,
    path: str,
    title: str,
    body: tuple[Child, ...],
    scripts: tuple[str, ...],
    status: int,
) -> HttpResponse:
    services, session = request.services, request.session
    user = services.identity.name
    logout = tag(
        "form",
        tag("input", type="hidden", name="csrf", value=session.csrf),
        tag("button", "Log out", type="submit", class_="quiet"),
        method="post",
        action="/logout",
    )
    frame = fragment(
        tag("a", "Skip to content", href="#content", class_="skip"),
        tag(
            "header",
            tag("a", tag("span", "Transom", class_="brand"), href="/", aria_label="Transom: home"),
            tag(
                "nav",
                [
                    tag(
                        "a",
                        title_,
                        href=link,
                        aria_current="page" if link == path else None,
                    )
                    for title_, link in services.navigation
                ],
                aria_label="Pages",
            ),
            tag(
                "div",
                tag(
                    "span",
                    f"{user} @ {services.cluster}",
                    class_="identity",
                    title=f"Every request uses the rights of {user} in {services.cluster}",
                ),
                logout,
                class_="account",
            ),
            class_="top",
        ),
        tag("main", *body, id="content", tabindex="-1"),
        tag("div", id="toasts", role="status", aria_live="polite"),
        tag("footer", f"Transom {__version__}"),
    )
    return html_response(
        bare_page(title, frame, scripts=("frame.js", *scripts), csrf=session.csrf), status
    )


def scroll_box(label: str, *children: Child, class_: str = "", id_: str | None = None) -> Markup:
    """A box that scrolls. It takes part in the Tab order, so that the keyboard can scroll it too."""
    return tag(
        "div",
        *children,
        id=id_,
        class_=f"scroll {class_}".strip(),
        tabindex="0",
        role="region",
        aria_label=label,
    )


def tabs_heading(heading: str, views: Sequence[tuple[str, str]], current: str) -> Markup:
    """The heading of a page with several views: a tab for each title and path."""
    tabs = [
        tag(
            "a",
            title,
            href=path,
            class_="button",
            aria_current="page" if path == current else None,
        )
        for title, path in views
    ]
    return fragment(
        tag("link", rel="stylesheet", href="/static/why.css"),
        tag("h1", heading),
        tag("div", tabs, class_="tabs"),
    )
