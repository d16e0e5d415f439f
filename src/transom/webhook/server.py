"""The webhook's HTTPS server: reviews at /validate, health checks, and metrics of its findings. Its
only Kubernetes types are reviews.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from pathlib import Path
from typing import Final

import orjson

from transom.http import HttpLimits, HttpRequest, HttpResponse, HttpServer, server_context
from transom.kit.prometheus import CONTENT_TYPE, Family, Sample, render_metrics
from transom.kit.tls_pairs import load_certificate_files
from transom.webhook.review import InvalidReview, answer_review
from transom.windows.advice import Advisor

log = logging.getLogger("transom.webhook")

PATH: Final = "/validate"
_HEALTH: Final = ("/healthz", "/livez", "/readyz")
# A review of an update contains the object twice, and Kubernetes accepts objects up to 3 MiB.
_BODY: Final = 8 * 1024 * 1024
_LOOK_SECONDS: Final = 30.0
_STOP_GRACE: Final = 5.0
_JSON: Final = [(b"Content-Type", b"application/json")]
_METRICS: Final = [(b"Content-Type", CONTENT_TYPE.encode())]


class WebhookHandler:
    def __init__(self, advisor: Advisor) -> None:
        self._advisor = advisor
        self._reviews: Counter[tuple[str, str]] = Counter()  # operation, allowed
        self._records: Counter[tuple[str, str]] = Counter()  # "warned" or "refused", id
        self._seconds = 0.0

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path == PATH:
            return (
                self._review(request)
                if request.method == "POST"
                else _text(405, "reviews are sent by POST")
            )
        if request.method not in ("GET", "HEAD"):
            return _text(405, "method not allowed")
        if request.path in _HEALTH:
            return _text(200, "ok")
        if request.path == "/metrics":
            return HttpResponse(200, _METRICS, self._metrics().encode())
        return _text(404, "not found")

    def _review(self, request: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        try:
            done = answer_review(orjson.loads(request.body), self._advisor)
        except (orjson.JSONDecodeError, InvalidReview) as problem:
            return _text(400, f"cannot answer: {problem}")
        warnings, refusals = done.decision
        self._reviews[done.operation, str(not refusals).lower()] += 1
        for word, texts in (("warned", warnings), ("refused", refusals)):
            for text in texts:
                self._records[word, text.partition(":")[0]] += 1
        self._seconds += time.perf_counter() - began
        return HttpResponse(200, _JSON, orjson.dumps(done.review))

    def _metrics(self) -> str:
        reviews = [
            Sample((("operation", _label(operation)), ("allowed", allowed)), count)
            for (operation, allowed), count in sorted(self._reviews.items())
        ]
        records = [
            Sample((("outcome", outcome), ("id", id)), count)
            for (outcome, id), count in sorted(self._records.items())
        ]
        return render_metrics(
            (
                Family("transom_webhook_reviews_total", "counter", "Answered reviews.", reviews),
                Family(
                    "transom_webhook_records_total",
                    "counter",
                    "Warnings and rejections by limit.",
                    records,
                ),
                Family(
                    "transom_webhook_seconds_total",
                    "counter",
                    "Time spent on reviews.",
                    [Sample((), round(self._seconds, 6))],
                ),
            )
        )


def _label(text: str) -> str:
    return text if text in ("CREATE", "UPDATE", "DELETE", "CONNECT") else "other"


def _text(status: int, text: str) -> HttpResponse:
    return HttpResponse(
        status, [(b"Content-Type", b"text/plain; charset=utf-8")], text.encode() + b"\n"
    )


class WebhookServer:
    """Serves until cancelled. Reloads certificates that change on disk, as those of a mounted
    Secret do.
    """

    def __init__(self, advisor: Advisor, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._context = server_context(certificate, key)
        self._stamp = self._stamps()
        self._server = HttpServer(
            WebhookHandler(advisor), self._context, limits=HttpLimits(body=_BODY)
        )

    async def start(self, host: str, port: int) -> int:
        """Starts listening; returns the port."""
        return await self._server.start(host, port)

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                self.renew()
        finally:
            await self._server.stop(_STOP_GRACE)

    def renew(self) -> None:
        """New connections use the certificate that is now on disk."""
        try:
            stamp = self._stamps()
            if stamp != self._stamp:
                load_certificate_files(self._context, *self._files)
                self._stamp = stamp
                log.info("the certificate was renewed")
        except (OSError, ssl.SSLError) as problem:  # only partly written: retried at the next check
            log.warning("the certificate on disk cannot be used yet: %s", problem)

    def _stamps(self) -> list[tuple[int, int]]:
        return [
            (status.st_mtime_ns, status.st_ino) for status in (path.stat() for path in self._files)
        ]
