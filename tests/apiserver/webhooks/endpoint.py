"""A webhook to call: a small HTTPS server whose behaviour is one function, and the certificates for
it.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from transom.kit import pki

CA = pki.make_ca("webhook-ca")
Answer = bytes | None | dict[str, Any]
Behaviour = Callable[[dict[str, Any]], Answer | Awaitable[Answer]]


def context(pair: pki.KeyPair) -> ssl.SSLContext:
    out = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        cert, key = Path(folder) / "c", Path(folder) / "k"
        pki.save_key_pair(pair, cert, key)
        out.load_cert_chain(cert, key)
    return out


def http(status: int, body: bytes, kind: str = "application/json", *more: str) -> bytes:
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", f"Content-Type: {kind}", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@dataclass
class Endpoint:
    """`behave` gets the review and gives an AdmissionReview's response, raw bytes to send, or None
    to hang up.
    """

    behave: Behaviour
    port: int = 0
    connections: int = 0
    reviews: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def start(self, pair: pki.KeyPair | None = None, *, tls: bool = True) -> Endpoint:
        pair = pair or pki.issue_server(CA, "hook", ["localhost", "hook.ns.svc"], ["127.0.0.1"])
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=context(pair) if tls else None
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def hang_up(self) -> None:
        """Close all connections, as a crash of the webhook would."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def config(self, path: str = "/x", ca: bytes = CA.certificate) -> dict[str, Any]:
        return {
            "url": f"https://127.0.0.1:{self.port}{path}",
            "caBundle": base64.b64encode(ca).decode(),
        }

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                size = next(
                    int(x.split(":")[1])
                    for x in head.splitlines()
                    if x.lower().startswith("content-length")
                )
                review = orjson.loads(await reader.readexactly(size))
                self.heads.append(head)
                self.reviews.append(review)
                answer = self.behave(review)
                if isinstance(answer, Awaitable):
                    answer = await answer
                if answer is None:
                    return
                if isinstance(answer, dict):
                    answer = reviewed(review, answer)
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return
        finally:
            writer.close()


def reviewed(review: dict[str, Any], response: dict[str, Any]) -> bytes:
    body = {
        "kind": "AdmissionReview",
        "apiVersion": review["apiVersion"],
        "response": {"uid": review["request"]["uid"], **response},
    }
    return http(200, orjson.dumps(body))


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    raw = base64.b64encode(orjson.dumps(operations)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": raw}
