"""The client of webhooks: what it sends, and its error messages."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable
from typing import Any

import orjson
import pytest
import uvloop
from tests.apiserver.webhooks.endpoint import CA, Endpoint, http
from tests.conftest import UVLOOP, Backend

from transom.apiserver.core.service_resolver import ServiceAddress, UnresolvedService
from transom.apiserver.webhooks.client import CallFailed, WebhookClient
from transom.kit import pki


@pytest.fixture
def anyio_backend() -> Backend:
    return UVLOOP


def unresolved(_namespace: str, name: str, _port: int) -> ServiceAddress:
    raise UnresolvedService(f'service "{name}" not found')


async def failure(config: dict[str, Any], within: float = 5.0) -> str:
    with pytest.raises(CallFailed) as caught:
        await WebhookClient(unresolved)(config, {"a": 1}, within, dict)
    return str(caught.value)


def run(work: Any) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the server does
        return runner.run(work)


STATUS = orjson.dumps(
    {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "so it is", "code": 500}
)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, 'Post "{url}": EOF'),
        (
            b"SSH-2.0-OpenSSH\r\n",
            'Post "{url}": net/http: HTTP/1.x transport connection broken: malformed HTTP response '
            '"SSH-2.0-OpenSSH"',
        ),
        (
            http(500, b"oops\n", "text/plain"),
            'an error on the server ("oops") has prevented the request from succeeding',
        ),
        (
            http(500, b"{}"),
            'an error on the server ("unknown") has prevented the request from succeeding',
        ),
        (http(500, STATUS), "so it is"),
        (http(404, b"", "text/plain"), "the server could not find the requested resource"),
        (http(403, b"no entry", "text/plain"), "no entry"),
        (
            http(302, b""),
            "the server responded with the status code 302 but did not return more information",
        ),
        (http(503, b""), "the server is currently unable to handle the request"),
        (
            http(200, b""),
            "0-length response with status code: 200 and content type: application/json",
        ),
        (
            http(200, b"{oops"),
            "couldn't get version/kind; json parse error: invalid character 'o' looking for "
            "beginning of "
            "object key string",
        ),
        (
            http(200, b"hello"),
            "couldn't get version/kind; json parse error: json: cannot unmarshal string into "
            "Go value of "
            'type struct {{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
            '"json:\\"kind,omitempty\\"" }}',
        ),
        (
            b"HTTP/1.1 200 X\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhalf",
            (
                "unexpected error when reading response body. Please retry. Original error: "
                "unexpected EOF"
            ),
        ),
    ],
)
async def test_answers_that_are_none(answer: bytes | None, text: str) -> None:
    endpoint = await Endpoint(lambda _review: answer).start()
    url = f"https://127.0.0.1:{endpoint.port}/x?timeout=5s"
    if answer is not None and answer.endswith(b"half"):
        asyncio.get_running_loop().call_later(0.2, endpoint.hang_up)
    assert await failure(endpoint.config()) == text.format(url=url)
    endpoint.stop()


@pytest.mark.parametrize(
    ("pair", "ca", "text"),
    [
        (None, pki.make_ca("another").certificate, "x509: certificate signed by unknown authority"),
        (
            None,
            pki.make_ca("webhook-ca").certificate,
            'x509: certificate signed by unknown authority (possibly because of "x509: ECDSA '
            'verification failure" while trying '
            'to verify candidate authority certificate "webhook-ca")',
        ),
        (None, b"no certificate", "x509: certificate signed by unknown authority"),
        (
            pki.issue_server(CA, "x", ["a.svc"], ["10.0.0.1"]),
            CA.certificate,
            "x509: certificate is valid for 10.0.0.1, not 127.0.0.1",
        ),
        (
            pki.issue_server(CA, "x", ["a.svc"]),
            CA.certificate,
            (
                "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any "
                "IP SANs"
            ),
        ),
        (
            pki.issue_client(CA, "127.0.0.1"),
            CA.certificate,
            (
                "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any "
                "IP SANs"
            ),
        ),
    ],
)
async def test_certificates(pair: pki.KeyPair | None, ca: bytes, text: str) -> None:
    endpoint = await Endpoint(lambda _review: http(200, b"{}")).start(pair)
    url = f"https://127.0.0.1:{endpoint.port}/x?timeout=5s"
    assert await failure(endpoint.config(ca=ca)) == f'Post "{url}": {text}'
    endpoint.stop()


async def test_a_certificate_that_has_expired() -> None:
    pair = pki.issue_server(CA, "x", [], ["127.0.0.1"], days=1, now=time.time() - 10 * 86400)
    endpoint = await Endpoint(lambda _review: http(200, b"{}")).start(pair)
    text = await failure(endpoint.config())
    assert "x509: certificate has expired or is not yet valid: current time " in text
    assert " is after " in text
    endpoint.stop()


async def test_the_network_of_the_cluster_leads_to_its_own_addresses() -> None:
    endpoint = await Endpoint(lambda _review: http(200, b'{"a":1}')).start()
    requested: list[tuple[str, int]] = []

    async def enter() -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", endpoint.port))
        sock.setblocking(False)
        return sock

    def way(host: str, port: int) -> Awaitable[socket.socket] | None:
        requested.append((host, port))
        return enter() if host.startswith("10.244.") else None

    client = WebhookClient(lambda *_service: ServiceAddress("10.244.1.7", 8443), connect=way)
    config = endpoint.config() | {"url": None, "service": {"namespace": "ns", "name": "hook"}}
    assert await client(config, {}, 3, dict) == {"a": 1}
    assert await client(endpoint.config(), {}, 3, dict) == {"a": 1}
    assert requested == [("10.244.1.7", 8443), ("127.0.0.1", endpoint.port)]
    client.close()
    endpoint.stop()


async def test_names_of_services_are_checked_and_resolved() -> None:
    endpoint = await Endpoint(lambda _review: http(200, b'{"a":1}')).start()
    client = WebhookClient(lambda *_service: ServiceAddress("127.0.0.1", endpoint.port))
    config = endpoint.config() | {
        "url": None,
        "service": {"namespace": "ns", "name": "hook", "path": "/a/"},
    }
    assert await client(config, {}, 3, dict) == {"a": 1}
    assert endpoint.heads[0].startswith("POST /a?timeout=3s HTTP/1.1\r\nHost: hook.ns.svc:443\r\n")
    config["service"]["name"] = "other"
    with pytest.raises(
        CallFailed,
        match=r"x509: certificate is valid for localhost, hook\.ns\.svc, not other\.ns\.svc",
    ):
        await client(config, {}, 3, dict)
    assert (
        await failure(config)
        == 'Post "https://other.ns.svc:443/a?timeout=5s": service "other" not found'
    )
    endpoint.stop()


async def test_no_server_and_no_answer() -> None:
    assert await failure({"url": "https://127.0.0.1:1"}) == (
        'Post "https://127.0.0.1:1/?timeout=5s": dial tcp 127.0.0.1:1: connect: connection refused'
    )
    assert "dial tcp: lookup nowhere.invalid" in await failure({"url": "https://nowhere.invalid/"})
    slow = await Endpoint(lambda _review: asyncio.Event().wait()).start()  # type: ignore[arg-type,return-value]
    text = await failure(slow.config(), 0.2)
    assert text == f'Post "https://127.0.0.1:{slow.port}/x?timeout=1s": context deadline exceeded'
    slow.stop()
    plain = await Endpoint(lambda _review: None).start(tls=False)
    await failure(plain.config(), 0.5)
    plain.stop()


async def test_connections_are_kept_and_replaced_when_they_die() -> None:
    endpoint = await Endpoint(lambda _review: http(200, b'{"a":1}')).start()
    client = WebhookClient(unresolved)
    for _ in range(3):
        assert await client(endpoint.config(), {}, 3, dict) == {"a": 1}
    assert endpoint.connections == 1
    endpoint.hang_up()
    assert await client(endpoint.config(), {}, 3, dict) == {"a": 1}
    assert endpoint.connections == 2
    client.close()
    endpoint.stop()


async def test_one_that_says_when_to_come_again_is_asked_again() -> None:
    answers = iter([http(503, b"", "text/plain", "Retry-After: 0"), http(200, b'{"a":1}')])
    endpoint = await Endpoint(lambda _review: next(answers)).start()
    assert await WebhookClient(unresolved)(endpoint.config(), {}, 3, dict) == {"a": 1}
    endpoint.stop()


async def test_a_long_number_of_seconds_waits_for_the_deadline() -> None:
    """int() accepts at most 4,300 digits."""
    wait = f"Retry-After: {'9' * 5000}"
    endpoint = await Endpoint(lambda _review: http(503, b"", "text/plain", wait)).start()
    assert (await failure(endpoint.config(), 0.05)).endswith("context deadline exceeded")
    endpoint.stop()


class Workers:
    """Counts what runs in the worker."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, work: Any, *, group: Any = None, seconds: float | None = None) -> Any:
        self.calls += 1
        return work()

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("code", [200, 500])
async def test_large_answers_are_read_in_the_worker(code: int) -> None:
    body = orjson.dumps({"kind": "Status", "status": "Failure", "message": "m", "a": "x" * 100_000})
    endpoint = await Endpoint(lambda _review: http(code, body)).start()
    workers = Workers()
    client = WebhookClient(unresolved, workers=workers)
    if code == 200:
        assert (await client(endpoint.config(), {}, 3, dict))["message"] == "m"
    else:
        with pytest.raises(CallFailed, match=r"^m$"):
            await client(endpoint.config(), {}, 3, dict)
        assert workers.calls == 1
    assert workers.calls
    client.close()
    endpoint.stop()
