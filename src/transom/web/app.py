"""The console's request chain, from the socket to a page: `ConsoleApp.__call__` is the whole list.

1. Host: names of this machine only, so that another site's name cannot be pointed at it.
2. Static files and the login, which need no session.
3. Session: the cookie.
4. Origin and CSRF token, for everything that is not a read.
5. Route: `page_table.PAGES`. Pages show the name of the user that the API server sees.
6. Errors of the API server become a page or a JSON object with its message.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final

from transom.client.api import ApiUnreachable
from transom.http.messages import Answer, Headers, HttpRequest, HttpResponse, parse_query
from transom.machinery.errors import ApiError
from transom.web.layout import bare_page, error_page
from transom.web.login import SESSION_SECONDS, Logins, Session
from transom.web.markup import Markup, tag, with_code
from transom.web.responses import html_response, json_error, json_page, redirect_to_page
from transom.web.routing import ConsoleServices, Page, PageRequest, Router
from transom.web.static_files import static_response
from transom.web.workers import free_memory_soon

log = logging.getLogger("transom.web")

_LARGE_PAGE: Final = 128 * 1024
_COOKIES: Final = 64  # of one name that are looked up
_READS: Final = ("GET", "HEAD")
_LOGIN_HELP: Final = (
    "Press Enter in the terminal where `transom console` runs to get a new login link, or run "
    "`transom console` again."
)


class ConsoleApp:
    """`origins`: how browsers may address the console, such as http://127.0.0.1:8899."""

    def __init__(
        self,
        services: ConsoleServices,
        pages: tuple[Page, ...],
        origins: tuple[str, ...],
        cookie: str,
        secure: bool = False,
    ) -> None:
        self._services = services
        self._origins = frozenset(origins)
        self._hosts = frozenset(origin.partition("://")[2] for origin in origins)
        self._cookie = cookie
        self._secure = secure
        self._home = pages[0].path
        self._router = Router()
        for page in pages:
            self._router.add(page.routes)

    async def __call__(self, request: HttpRequest) -> Answer:
        if request.header(b"host") not in self._hosts:
            return json_error(421, "the console does not serve this host name")
        if request.method in _READS and request.path.startswith("/static/"):
            return static_response(request, request.path.removeprefix("/static/"))
        if request.path == "/login":
            return self._log_in(request)
        cookie, session = self._find_session(request)
        if session is None:
            return self._no_session(request)
        if refusal := self._check_origin(request, session):
            return refusal
        if request.path == "/logout" and request.method == "POST":
            self._services.logins.log_out(cookie)
            return self._with_cookie(redirect_to_page("/login"), "", 0)
        if request.path == "/session":
            return json_page({"identity": session.identity})
        if request.path == "/":
            return redirect_to_page(self._home)
        return await self._serve_route(request, session)

    async def _serve_route(self, request: HttpRequest, session: Session) -> Answer:
        found = self._router.find(request.method, request.path)
        route, params = found if found else (None, {})
        page_request = PageRequest(request, session, self._services, params)
        if _wants_page(request):
            await self._services.identity.resolve_name()
        if route is None:
            if methods := self._router.methods(request.path):
                return json_error(405, f"use {' or '.join(methods)}")
            return _failure(page_request, 404, "Not found", f"There is no page {request.path}.")
        try:
            answer = await route.handler(page_request)
            _free_memory_after(answer)
            return answer
        except ApiError as problem:
            heading = "Not allowed" if problem.code == 403 else "The API server refused"
            if _wants_page(request):
                return error_page(page_request, problem.code, heading, problem.message)
            return json_error(problem.code, problem.message, problem.reason, problem.details)
        except ApiUnreachable as problem:
            log.info("the API server cannot be reached: %s", problem)
            return _failure(page_request, 502, "The API server cannot be reached", str(problem))

    # ---- checks ----

    def _check_origin(self, request: HttpRequest, session: Session) -> HttpResponse | None:
        """Whether the request comes from a page of this console; None if it does.

        Reads by scripts of other sites are refused too; links from anywhere may open a page.
        """
        origin = request.header(b"origin")
        upgrade = b"upgrade" in request.headers
        if request.method in _READS and not upgrade:
            site = request.header(b"sec-fetch-site", "none")
            if site in ("same-origin", "none") or request.header(b"sec-fetch-mode") == "navigate":
                return None
            return json_error(403, "requests from other sites are not accepted")
        if origin not in self._origins:
            return json_error(403, "requests from other sites are not accepted")
        if upgrade:  # a browser cannot set headers of a WebSocket; its Origin cannot be forged
            return None
        if not session.accepts_csrf(_csrf_token(request)):
            return json_error(403, "the CSRF token is missing or wrong: reload the page")
        return None

    def _no_session(self, request: HttpRequest) -> Answer:
        if not _wants_page(request):
            return json_error(401, "the session has ended: log in again", "Unauthorized")
        return html_response(
            _login_page("Log in", "You are not logged in, or the session has ended."), 401
        )

    # ---- login ----

    def _log_in(self, request: HttpRequest) -> Answer:
        if request.method in _READS:
            token = (request.query.get("token") or [""])[-1]
            if not token:
                return html_response(_login_page("Log in", ""))
        elif request.method == "POST" and request.header(b"origin") in self._origins:
            token = (parse_query(request.body).get("token") or [""])[-1].strip()
            token = token.rpartition("token=")[2]  # the whole link was pasted
        else:
            return json_error(403, "requests from other sites are not accepted")
        found = self._services.logins.log_in(token)
        if found is None:
            text = "This login link was used already, has expired or is wrong."
            return html_response(_login_page("Login failed", text), 403)
        cookie, _ = found
        return self._with_cookie(redirect_to_page("/"), cookie, int(SESSION_SECONDS))

    def _find_session(self, request: HttpRequest) -> tuple[str, Session | None]:
        """The cookie that belongs to a session. Other ports of the host share its cookies, so that
        a page there can add cookies of the same name: they are ignored.
        """
        pairs = (pair.strip().partition("=") for pair in request.header(b"cookie").split(";"))
        for value in islice((value for name, _, value in pairs if name == self._cookie), _COOKIES):
            if session := self._services.logins.find_session(value):
                return value, session
        return "", None

    def _with_cookie(self, answer: HttpResponse, value: str, seconds: int) -> HttpResponse:
        text = f"{self._cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"
        headers: Headers = [
            *answer.headers,
            (b"Set-Cookie", (text + ("; Secure" if self._secure else "")).encode()),
        ]
        return HttpResponse(answer.status, headers, answer.body)


def login_link(origin: str, logins: Logins) -> str:
    """A new link that logs in once."""
    return f"{origin}/login?token={logins.make_login_token()}"


def _login_page(heading: str, problem: str) -> Markup:
    body = tag(
        "main",
        tag("p", tag("span", "Transom", class_="brand")),
        tag("h1", heading),
        tag("p", problem, role="alert", class_="problem") if problem else None,
        tag("p", with_code(_LOGIN_HELP)),
        tag(
            "form",
            tag("label", "Login link or token", for_="token"),
            tag(
                "input",
                id="token",
                name="token",
                type="password",
                autocomplete="off",
                required=True,
                autofocus=True,
            ),
            tag("button", "Log in", type="submit"),
            method="post",
            action="/login",
        ),
        class_="login",
    )
    return bare_page(heading, body)


def _csrf_token(request: HttpRequest) -> str:
    token = request.header(b"x-csrf-token")
    if token or "x-www-form-urlencoded" not in request.header(b"content-type"):
        return token
    return (parse_query(request.body).get("csrf") or [""])[-1]


def _failure(request: PageRequest, status: int, heading: str, message: str) -> Answer:
    if _wants_page(request.http):
        return error_page(request, status, heading, message)
    return json_error(status, message)


def _wants_page(request: HttpRequest) -> bool:
    return "text/html" in request.header(b"accept")


def _free_memory_after(answer: Answer) -> None:
    body = answer.body if isinstance(answer, HttpResponse) else b""
    if isinstance(body, bytes) and len(body) >= _LARGE_PAGE:
        free_memory_soon()
