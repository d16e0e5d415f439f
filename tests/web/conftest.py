"""A console without a network: requests go straight to its handler, and a scripted API server
answers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.kubeconfig import RestConfig
from transom.http.messages import (
    Answer,
    HttpRequest,
    HttpResponse,
    StreamResponse,
    body_bytes,
    decode_path,
)
from transom.http.server import HttpServer
from transom.kit.clock import VirtualClock
from transom.machinery.errors import ApiError
from transom.web.app import ConsoleApp
from transom.web.child_jobs import Job
from transom.web.page_table import PAGES
from transom.web.routing import ConsoleServices, Page
from transom.web.server import make_services

ORIGIN = "http://127.0.0.1:8899"
ApiHandler = Callable[[HttpRequest], Answer]


@dataclass
class BrowserResponse:
    status: int
    headers: dict[str, str]
    text: str


class ScriptedJobs:
    """Results of jobs that a test sets, or an ApiError; without a child process."""

    def __init__(self) -> None:
        self.results: dict[Job, Any] = {Job.DOCTOR: []}
        self.ran: list[Job] = []
        self.finish: asyncio.Event | None = None  # jobs end when it is set

    async def run(self, job: Job, *arguments: str) -> Any:
        self.ran.append(job)
        if self.finish is not None:
            await self.finish.wait()
        found = self.results[job]
        if isinstance(found, ApiError):
            raise found
        return found


@dataclass
class Browser:
    """Sends requests as a browser would, with the cookie and the token of its session."""

    app: ConsoleApp
    services: ConsoleServices
    clock: VirtualClock
    jobs: ScriptedJobs
    cookie: str = ""
    csrf: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    async def answer(
        self, method: str, target: str, body: bytes = b"", **headers: str | None
    ) -> Answer:
        given: dict[str, str | None] = {
            "host": "127.0.0.1:8899",
            "accept": "text/html",
            "cookie": self.cookie,
        }
        if method == "POST":
            given |= {"origin": ORIGIN, "x_csrf_token": self.csrf}
        encoded = {
            name.replace("_", "-").encode(): value.encode()
            for name, value in (given | headers).items()
            if value is not None
        }
        path = decode_path(target.encode())
        assert path is not None
        return await self.app(HttpRequest(method, target.encode(), path, encoded, body))

    async def send(
        self, method: str, target: str, body: bytes = b"", **headers: str | None
    ) -> BrowserResponse:
        answer = await self.answer(method, target, body, **headers)
        assert isinstance(answer, HttpResponse)
        found = {k.decode().lower(): v.decode() for k, v in answer.headers}
        return BrowserResponse(answer.status, found, body_bytes(answer.body).decode())

    async def get(self, target: str, **headers: str | None) -> BrowserResponse:
        return await self.send("GET", target, **headers)

    async def post(
        self, target: str, body: bytes = b"{}", **headers: str | None
    ) -> BrowserResponse:
        return await self.send("POST", target, body, **headers)

    def log_in(self) -> None:
        cookie, session = self.services.logins.log_in(self.services.logins.make_login_token()) or (
            "",
            None,
        )
        assert session is not None
        self.cookie, self.csrf = f"transom-console-8899={cookie}", session.csrf


@pytest.fixture
def browser() -> ContextFactory:
    """A browser in front of a console in front of `api`, which answers its requests."""

    @asynccontextmanager
    async def make(
        api: ApiHandler, pages: tuple[Page, ...] = PAGES, logged_in: bool = True
    ) -> AsyncIterator[Browser]:
        server = HttpServer(api, None)
        port = await server.start("127.0.0.1", 0)
        target = RestConfig("127.0.0.1", port, context="blue", user="jane")
        clock = VirtualClock()
        jobs = ScriptedJobs()
        services = make_services(target, clock, pages, jobs)
        app = ConsoleApp(services, pages, (ORIGIN, "http://localhost:8899"), "transom-console-8899")
        made = Browser(app, services, clock, jobs)
        if logged_in:
            made.log_in()
        try:
            yield made
        finally:
            services.logins.end_all()
            await services.streams.stop()
            services.api.close()
            await server.stop(0.1)

    return make


class RecordedStream:
    """The stream of a response, as the console's handlers see it."""

    def __init__(self) -> None:
        self.alive = True
        self.on_close: Callable[[], object] | None = None
        self.data = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.data += data

    def write_framed(self, data: bytes) -> None:
        raise NotImplementedError

    def offer(self, data: bytes) -> bool:
        raise NotImplementedError

    def follow(self, source: object) -> None:
        raise NotImplementedError

    async def drained(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def open_recorded(answer: Answer) -> RecordedStream:
    assert isinstance(answer, StreamResponse)
    stream = RecordedStream()
    answer.start(stream)
    return stream
