"""The console's request chain: host, login, session, origin, CSRF token, errors, headers."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from tests.conftest import ContextFactory
from tests.web.conftest import ORIGIN, open_recorded

from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.machinery.errors import ApiError
from transom.web.app import login_link
from transom.web.layout import page_response
from transom.web.login import IDLE_SECONDS, LOGIN_SECONDS
from transom.web.markup import tag
from transom.web.responses import EventStream, event_response, json_page
from transom.web.routing import Page, PageRequest, Route


async def _show(request: PageRequest) -> Answer:
    return page_response(request, PAGE, tag("h1", request.query("text")))


async def _large(request: PageRequest) -> Answer:
    return page_response(request, PAGE, tag("p", "x" * 200_000))


async def _change(request: PageRequest) -> Answer:
    return json_page({"got": request.json()})


async def _refused(_: PageRequest) -> Answer:
    raise ApiError(403, "Forbidden", "<b>jane</b> cannot list pods")


async def _lost(request: PageRequest) -> Answer:
    return json_page(await request.services.api.get_json("/lost"))


async def _live(request: PageRequest) -> Answer:
    async def produce(events: EventStream) -> None:
        await events.send("tick", {"text": "</script>"})
        await request.services.clock.sleep(10_000_000)

    return event_response(request, produce)


PAGE = Page(
    "cluster",
    "Test",
    "/test",
    (
        Route("GET", "/test", _show),
        Route("POST", "/test/{id}", _change),
        Route("GET", "/large", _large),
        Route("GET", "/refused", _refused),
        Route("GET", "/lost", _lost),
        Route("GET", "/live", _live),
    ),
)


def _no_api(_: HttpRequest) -> HttpResponse:
    return HttpResponse(500, [], b"no")


@pytest.fixture
def console(browser: ContextFactory) -> ContextFactory:
    return lambda **options: browser(_no_api, (PAGE,), **options)


async def test_login_link_works_once(console: ContextFactory) -> None:
    async with console(logged_in=False) as page:
        link = urlsplit(login_link(ORIGIN, page.services.logins))
        target = f"{link.path}?{link.query}"
        first = await page.get(target)
        assert first.status == 303
        assert first.headers["location"] == "/"
        cookie = first.headers["set-cookie"]
        assert cookie.startswith("transom-console-8899=")
        assert "; HttpOnly; SameSite=Strict" in cookie
        assert (await page.get("/test", cookie=cookie.partition(";")[0])).status == 200
        again = await page.get(target)
        assert again.status == 403
        assert "used already, has expired or is wrong" in again.text
        assert "set-cookie" not in again.headers


async def test_memory_of_a_large_page_is_returned(
    console: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed = asyncio.Event()
    monkeypatch.setattr("transom.web.workers._SENT_SECONDS", 0.0)
    monkeypatch.setattr("transom.web.workers.trim_memory_later", trimmed.set)
    async with console() as page:
        await page.get("/test?text=small")
        await asyncio.sleep(0)
        assert not trimmed.is_set()
        assert (await page.get("/large")).status == 200
        await asyncio.wait_for(trimmed.wait(), 10)


async def test_expired_login_link(console: ContextFactory) -> None:
    async with console(logged_in=False) as page:
        link = urlsplit(login_link(ORIGIN, page.services.logins))
        page.clock.advance(LOGIN_SECONDS)
        assert (await page.get(f"{link.path}?{link.query}")).status == 403


async def test_login_form_takes_the_token_or_the_whole_link(console: ContextFactory) -> None:
    async with console(logged_in=False) as page:
        for link in (False, True):
            token = page.services.logins.make_login_token()
            value = f"{ORIGIN}/login?token={token}" if link else token
            body = f"token={value}".replace(":", "%3A").replace("/", "%2F").replace("?", "%3F")
            answer = await page.post("/login", body.replace("==", "%3D").encode())
            assert answer.status == 303
        foreign = await page.post("/login", b"token=x", origin="http://evil.example")
        assert foreign.status == 403


async def test_without_a_session_nothing_is_shown(console: ContextFactory) -> None:
    async with console(logged_in=False) as page:
        answer = await page.get("/test")
        assert answer.status == 401
        assert "not logged in" in answer.text
        for target in ("/test", "/live", "/session", "/", "/nowhere"):
            answer = await page.get(target, accept="application/json")
            assert (answer.status, answer.text.count("log in again")) == (401, 1)
        wrong = await page.get("/test", cookie="transom-console-8899=guess; other=1")
        assert wrong.status == 401


async def test_cookies_that_another_port_of_the_host_sets_do_not_hide_the_session(
    console: ContextFactory,
) -> None:
    async with console() as page:
        name = "transom-console-8899"
        for cookies in (
            f"{name}=planted; {page.cookie}",
            f"{page.cookie}; {name}=",
            f"{name}=; {name}; {name}=%00; {page.cookie}; {name}=planted",
        ):
            assert (await page.get("/test", cookie=cookies)).status == 200
        many = "; ".join([f"{name}=planted"] * 5000)
        assert (await page.get("/test", cookie=f"{many}; {page.cookie}")).status == 401


async def test_expired_session(console: ContextFactory) -> None:
    async with console() as page:
        assert (await page.get("/test")).status == 200
        page.clock.advance(IDLE_SECONDS)
        assert (await page.get("/test")).status == 401
        assert (await page.post("/test/1", accept="application/json")).status == 401


async def test_log_out(console: ContextFactory) -> None:
    async with console() as page:
        form = f"csrf={page.csrf}".encode()
        answer = await page.send(
            "POST",
            "/logout",
            form,
            x_csrf_token=None,
            content_type="application/x-www-form-urlencoded",
        )
        assert answer.status == 303
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert (await page.get("/test")).status == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8899", "127.0.0.1", "", None])
async def test_other_host_names_are_refused(console: ContextFactory, host: str | None) -> None:
    """A page of another site whose name points at this machine is not served."""
    async with console() as page:
        for target in ("/test", "/login", "/static/console.css"):
            assert (await page.get(target, host=host)).status == 421
        assert (await page.get("/test", host="localhost:8899")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"x_csrf_token": None},
        {"x_csrf_token": "guess"},
        {"origin": None},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:8898"},
        {"origin": "https://127.0.0.1:8899"},
    ],
)
async def test_changes_need_origin_and_token(
    console: ContextFactory, headers: dict[str, str | None]
) -> None:
    async with console() as page:
        assert (await page.post("/test/1", b'{"a":1}')).text == '{"got":{"a":1}}'
        assert (await page.post("/test/1", b'{"a":1}', **headers)).status == 403
        assert (await page.post("/logout", **headers)).status == 403


async def test_scripts_of_other_sites_cannot_read(console: ContextFactory) -> None:
    async with console() as page:
        for site in ("cross-site", "same-site"):
            answer = await page.get("/test", sec_fetch_site=site, sec_fetch_mode="cors")
            assert answer.status == 403
            opened = await page.get("/test", sec_fetch_site=site, sec_fetch_mode="navigate")
            assert opened.status == 200
        foreign = await page.get("/live", upgrade="websocket", origin="http://evil.example")
        assert foreign.status == 403


async def test_every_answer_has_a_strict_policy(console: ContextFactory) -> None:
    async with console() as page:
        for target in ("/test", "/login", "/nowhere", "/static/console.css", "/refused", "/"):
            headers = (await page.get(target)).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] in ("no-store", "no-cache")


async def test_pages_escape_what_they_show(console: ContextFactory) -> None:
    async with console() as page:
        attack = "%3Cscript%3Ealert(1)%3C/script%3E"
        for target in (f"/test?text={attack}", f"/{attack}", "/refused"):
            text = (await page.get(target)).text
            assert "<script>alert" not in text
            assert "<b>jane" not in text


async def test_errors_of_the_api_server(console: ContextFactory) -> None:
    async with console() as page:
        shown = await page.get("/refused")
        assert shown.status == 403
        assert "Not allowed" in shown.text
        assert "&lt;b&gt;jane&lt;/b&gt; cannot list pods" in shown.text
        told = await page.get("/refused", accept="application/json")
        assert told.status == 403
        assert '"reason":"Forbidden"' in told.text
        assert (await page.get("/lost", accept="application/json")).status == 500
        assert (await page.get("/nowhere")).status == 404
        assert (await page.get("/test/1")).status == 405
        assert (await page.post("/test/1", b"[1]")).status == 400
        assert (await page.post("/test/1", b"{")).status == 400


async def test_live_events_end_with_the_session(console: ContextFactory) -> None:
    async with console() as page:
        stream = open_recorded(await page.answer("GET", "/live"))
        await page.clock.run_for(1)
        assert b'event: tick\ndata: {"text":"</script>"}\n\n' in stream.data
        assert not stream.closed
        page.services.logins.end_all()
        await page.clock.run_for(1)
        assert stream.closed


async def test_live_events_end_with_the_browser(console: ContextFactory) -> None:
    async with console() as page:
        stream = open_recorded(await page.answer("GET", "/live"))
        await page.clock.run_for(60)
        assert stream.data.count(b": still here") == 5
        assert stream.on_close is not None
        stream.on_close()
        await page.clock.run_for(1)
        assert stream.closed


async def test_open_streams_are_bounded(console: ContextFactory) -> None:
    async with console() as page:
        for _ in range(64):
            open_recorded(await page.answer("GET", "/live"))
        assert (await page.get("/live")).status == 503


async def test_static_files(console: ContextFactory) -> None:
    async with console(logged_in=False) as page:
        answer = await page.get("/static/console.css")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/css")
        same = await page.get("/static/console.css", if_none_match=answer.headers["etag"])
        assert same.status == 304
        for name in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "", "x.css", "/etc/passwd"):
            assert (await page.get(f"/static/{name}")).status == 404
