"""A small HTTPS client for attacks: it sends what the test gives it, legal or not, and needs no library
that would refuse to.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class Endpoint:
    """Where the server is, and the credentials of its administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        url = urlsplit(cluster["server"])
        assert url.hostname is not None and url.port is not None
        self.host, self.port = url.hostname, url.port
        self.context = self.anonymous_context(cluster)
        with tempfile.NamedTemporaryFile() as pair:
            for key in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[key]))
            pair.flush()
            self.context.load_cert_chain(pair.name)
        self.anonymous = self.anonymous_context(cluster)

    @staticmethod
    def anonymous_context(cluster: dict[str, Any]) -> ssl.SSLContext:
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return ssl.create_default_context(cadata=authority)

    def connect(self, *, anonymous: bool = False, timeout: float = 120) -> ssl.SSLSocket:
        plain = socket.create_connection((self.host, self.port), timeout=timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = self.anonymous if anonymous else self.context
        return context.wrap_socket(plain, server_hostname=self.host)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


class Client:
    """One connection, kept alive."""

    def __init__(self, endpoint: Endpoint, *, anonymous: bool = False, token: str = "") -> None:
        self._endpoint = endpoint
        self._anonymous = anonymous or bool(token)
        self._token = token
        self._socket: ssl.SSLSocket | None = None
        self._file: Any = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = self._file = None

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> None:
        if self._socket is None:
            self._socket = self._endpoint.connect(anonymous=self._anonymous)
            self._file = self._socket.makefile("rb")
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        lines = {
            "Host": "kubernetes",
            "Content-Length": str(len(data)),
            "Content-Type": "application/json",
        }
        if self._token:
            lines["Authorization"] = f"Bearer {self._token}"
        lines |= headers or {}
        head = (
            f"{method} {path} HTTP/1.1\r\n"
            + "".join(f"{k}: {v}\r\n" for k, v in lines.items())
            + "\r\n"
        )
        self._socket.sendall(head.encode("latin-1") + data)

    def receive(self) -> Answer:
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self._file.readline(), 16):
                body += self._file.read(size)
                self._file.readline()
            self._file.readline()
        elif "content-length" in headers:
            body = self._file.read(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        return Answer(status, headers, body)

    def __call__(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        self.send(method, path, body, headers)
        return self.receive()

    def ok(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        answer = self(method, path, body, headers)
        assert answer.status < 300, (method, path[:200], answer)
        return answer.json if answer.body else None

    def pipelined(self, calls: list[tuple[str, str, Any]], window: int = 32) -> list[Answer]:
        """Many requests without waiting for each answer."""
        out: list[Answer] = []
        for number, (method, path, body) in enumerate(calls):
            self.send(method, path, body)
            if number >= window:
                out.append(self.receive())
        while len(out) < len(calls):
            out.append(self.receive())
        return out
