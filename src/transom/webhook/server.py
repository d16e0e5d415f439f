"""The webhook over HTTPS: reviews at /validate, its health, and counts of what it said. Knows no Kubernetes beyond reviews."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from transom.http import HttpServer, Limits, Request, Response, server_context
from transom.webhook.review import BadReview, answer
from transom.windows.advice import Advisor

log = logging.getLogger("transom.webhook")

PATH: Final = "/validate"
_HEALTH: Final = ("/healthz", "/livez", "/readyz")
# A review of an update holds an object twice, and Kubernetes takes objects up to 3 MiB.
_BODY: Final = 8 * 1024 * 1024
_LOOK_SECONDS: Final = 30.0
_STOP_GRACE: Final = 5.0
_JSON: Final = [(b"Content-Type", b"application/json")]
_METRICS: Final = [(b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8")]


class Handler:
    def __init__(self, advisor: Advisor) -> None:
        self._advisor = advisor
        self._reviews: Counter[tuple[str, str]] = Counter()  # operation, allowed
        self._told: Counter[tuple[str, str]] = Counter()  # "warned" or "refused", id
        self._seconds = 0.0

    def __call__(self, request: Request) -> Response:
        if request.path == PATH:
            return self._review(request) if request.method == "POST" else _text(405, "reviews are sent by POST")
        if request.method not in ("GET", "HEAD"):
            return _text(405, "method not allowed")
        if request.path in _HEALTH:
            return _text(200, "ok")
        if request.path == "/metrics":
            return Response(200, _METRICS, "".join(self._metrics()).encode())
        return _text(404, "not found")

    def _review(self, request: Request) -> Response:
        began = time.perf_counter()
        try:
            done = answer(orjson.loads(request.body), self._advisor)
        except (orjson.JSONDecodeError, BadReview) as problem:
            return _text(400, f"cannot answer: {problem}")
        warnings, refusals = done.judgement
        self._reviews[done.operation, str(not refusals).lower()] += 1
        for word, texts in (("warned", warnings), ("refused", refusals)):
            for text in texts:
                self._told[word, text.partition(":")[0]] += 1
        self._seconds += time.perf_counter() - began
        return Response(200, _JSON, orjson.dumps(done.review))

    def _metrics(self) -> Iterator[str]:
        yield "# HELP transom_webhook_reviews_total Reviews that were answered.\n# TYPE transom_webhook_reviews_total counter\n"
        for (operation, allowed), count in sorted(self._reviews.items()):
            yield f'transom_webhook_reviews_total{{operation="{_label(operation)}",allowed="{allowed}"}} {count}\n'
        yield "# HELP transom_webhook_records_total What was said, by record.\n# TYPE transom_webhook_records_total counter\n"
        for (word, id), count in sorted(self._told.items()):
            yield f'transom_webhook_records_total{{outcome="{word}",id="{id}"}} {count}\n'
        yield "# HELP transom_webhook_seconds_total Time spent on reviews.\n# TYPE transom_webhook_seconds_total counter\n"
        yield f"transom_webhook_seconds_total {self._seconds:.6f}\n"


def _label(text: str) -> str:
    return text if text in ("CREATE", "UPDATE", "DELETE", "CONNECT") else "other"


def _text(status: int, text: str) -> Response:
    return Response(status, [(b"Content-Type", b"text/plain; charset=utf-8")], text.encode() + b"\n")


class Webhook:
    """Serves until it is cancelled. Certificates that are replaced on disk are taken up: those of a Secret change in place."""

    def __init__(self, advisor: Advisor, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._context = server_context(certificate, key)
        self._stamp = self._stamps()
        self._server = HttpServer(Handler(advisor), self._context, limits=Limits(body=_BODY))

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port."""
        return await self._server.start(host, port)

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                self.renew()
        finally:
            await self._server.stop(_STOP_GRACE)

    def renew(self) -> None:
        """New connections get the certificate that is on disk now."""
        try:
            stamp = self._stamps()
            if stamp != self._stamp:
                self._context.load_cert_chain(*self._files)
                self._stamp = stamp
                log.info("the certificate was renewed")
        except (OSError, ssl.SSLError) as problem:  # half written: the next look will find it whole
            log.warning("the certificate on disk cannot be used yet: %s", problem)

    def _stamps(self) -> list[tuple[int, int]]:
        return [(status.st_mtime_ns, status.st_ino) for status in (path.stat() for path in self._files)]
