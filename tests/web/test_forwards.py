"""Port-forwards: only the browser with the key gets in, and the pod does not see the console's
secrets.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from tests.conftest import ContextFactory

from transom.http.messages import Answer, HttpRequest, HttpResponse, StreamResponse
from transom.http.server import HttpServer
from transom.machinery.errors import ApiError
from transom.web.forwards import MOST_FORWARDS, Forward


class PodBehindProxy:
    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []

    def __call__(self, request: HttpRequest) -> Answer:
        self.requests.append(request)
        location = b"/api/v1/namespaces/shop/pods/web:80/proxy/next?a=b"
        return HttpResponse(302, [(b"Location", location), (b"X-Pod", b"1")], b"moved")


async def _send(forward: Forward, target: str, **headers: str) -> Answer:
    """Calls the handler of the forward's server."""
    server: HttpServer = forward.server
    given = {"host": f"127.0.0.1:{server.port}"} | headers
    encoded = {name.encode(): value.encode() for name, value in given.items()}
    answer = server.handler(HttpRequest("GET", target.encode(), target.partition("?")[0], encoded))
    assert not isinstance(answer, HttpResponse | StreamResponse)
    return await answer  # type: ignore[misc]


async def test_the_key_becomes_a_cookie(browser: ContextFactory) -> None:
    pod = PodBehindProxy()
    async with browser(pod) as page:
        session = page.services.logins.find_session(page.cookie.partition("=")[2])
        forward = await page.services.forwards.open(session, "shop", "web", 80)
        link = urlsplit(forward.link)
        refused = await _send(forward, "/")
        assert refused.status == 403
        assert (await _send(forward, "/?transom-forward=guess")).status == 403
        assert pod.requests == []
        entered = await _send(forward, f"{link.path}?{link.query}")
        headers = {name: value.decode() for name, value in entered.headers}
        assert entered.status == 303
        assert headers[b"Location"] == "/"
        assert "; HttpOnly; SameSite=Strict" in headers[b"Set-Cookie"]
        cookie = headers[b"Set-Cookie"].partition(";")[0]
        rebound = await _send(forward, "/", cookie=cookie, host="evil.example:80")
        assert rebound.status == 421

        cookies = f"{cookie}; transom-console-1=secret; theirs=1"
        answer = await _send(forward, "/path?q=1", cookie=cookies, authorization="x")
        assert answer.status == 302
        assert (b"Location", b"/next?a=b") in answer.headers
        sent = pod.requests[-1]
        assert sent.target == b"/api/v1/namespaces/shop/pods/web:80/proxy/path?q=1"
        assert sent.header(b"cookie") == "theirs=1"
        assert b"authorization" not in sent.headers
        await _send(forward, "/api/v1/namespaces/shop/pods/web:80/proxy/x", cookie=cookie)
        assert pod.requests[-1].path.endswith("/pods/web:80/proxy/x")
        await page.services.forwards.stop()


async def test_forwards_belong_to_a_session_and_are_bounded(browser: ContextFactory) -> None:
    async with browser(PodBehindProxy()) as page:
        logins, forwards = page.services.logins, page.services.forwards
        mine = logins.find_session(page.cookie.partition("=")[2])
        _, other = logins.log_in(logins.make_login_token())
        opened = [await forwards.open(mine, "shop", "web", 80) for _ in range(MOST_FORWARDS)]
        with pytest.raises(ApiError, match="at most"):
            await forwards.open(mine, "shop", "web", 80)
        assert forwards.of_pod(other, "shop", "web") == []
        await forwards.close(other, opened[0].id)
        assert len(forwards.of_pod(mine, "shop", "web")) == MOST_FORWARDS
        await forwards.close(mine, opened[0].id)
        assert len(mine.on_end) == MOST_FORWARDS - 1
        logins.end_all()
        await page.clock.run_for(1)
        assert forwards.of_pod(mine, "shop", "web") == []


SET_BY_POD = [
    b"transom-console-8899=stolen; Path=/",
    b" Transom-console-8899=x; Path=/objects",
    b"\ttransom-forward-1=x",
    b"theirs=1; Path=/",
]


async def test_a_pod_cannot_replace_or_clear_the_cookies_of_the_console(
    browser: ContextFactory,
) -> None:
    """Cookies belong to a host, not to a port: the forward is on the console's host."""

    def pod(_: HttpRequest) -> Answer:
        headers = [(b"Set-Cookie", value) for value in SET_BY_POD]
        return HttpResponse(200, [*headers, (b"Clear-Site-Data", b'"cookies"')], b"page")

    async with browser(pod) as page:
        session = page.services.logins.find_session(page.cookie.partition("=")[2])
        forward = await page.services.forwards.open(session, "shop", "web", 80)
        link = urlsplit(forward.link)
        entered = await _send(forward, f"{link.path}?{link.query}")
        cookie = dict(entered.headers)[b"Set-Cookie"].decode().partition(";")[0]
        answer = await _send(forward, "/", cookie=cookie)
        found = {(name.lower(), value.strip()) for name, value in answer.headers}
        assert (b"set-cookie", b"theirs=1; Path=/") in found
        assert not any(b"ransom-" in value for _, value in found)
        assert b"clear-site-data" not in dict(found)
        await page.services.forwards.stop()
