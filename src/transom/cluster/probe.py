"""A minimal admin client for a cluster: readiness, status, and operations on nodes.

Uses plain sockets, because a client library takes longer to import than a cluster takes to start.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterable
from typing import Any

from transom.cluster.config import ClusterConfig
from transom.cluster.pki import ClusterPki
from transom.kit.http_message import encode_request
from transom.kit.tls_pairs import load_certificate_files

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.I)


class ClusterUnreachable(Exception):
    pass


class ClusterProbe:
    def __init__(self, config: ClusterConfig, timeout: float = 5.0) -> None:
        pki = ClusterPki(config.pki)
        self._address = (
            "127.0.0.1" if config.bind in ("0.0.0.0", "::") else config.bind,
            config.port,
        )
        self._timeout = timeout
        self._socket: ssl.SSLSocket | None = None
        try:
            self._context = ssl.create_default_context(cafile=pki.ca)
            load_certificate_files(self._context, pki.admin_cert, pki.admin_key)
        except OSError as error:
            raise ClusterUnreachable(f"no usable certificates in {config.pki}: {error}") from error

    def get(self, path: str) -> tuple[int, bytes]:
        """Status code and body."""
        return self.request("GET", path)

    def request(
        self, method: str, path: str, body: Any = None, media: str = "application/json"
    ) -> tuple[int, bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        headers = (
            ("Host", self._address[0]),
            ("Accept", "application/json"),
            ("Content-Type", media),
        )
        try:
            if self._socket is None:
                plain = socket.create_connection(self._address, self._timeout)
                self._socket = self._context.wrap_socket(plain, server_hostname=self._address[0])
            self._socket.sendall(encode_request(method, path, headers, content))
            return self._read(self._socket)
        except OSError as error:
            self.close()
            raise ClusterUnreachable(str(error)) from error

    def upgrade(
        self, path: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> tuple[ssl.SSLSocket, bytes] | tuple[int, bytes]:
        """The connection after an upgrade, with the bytes already received; or the response that
        rejects the upgrade.
        """
        request = encode_request("GET", path, [(b"Host", self._address[0].encode()), *headers])
        try:
            plain = socket.create_connection(self._address, self._timeout)
            sock = self._context.wrap_socket(plain, server_hostname=self._address[0])
            sock.sendall(request)
            data = b""
            while b"\r\n\r\n" not in data:
                piece = sock.recv(65536)
                if not piece:
                    raise ConnectionError("the connection was closed in the middle of a response")
                data += piece
            if data.split(b" ", 2)[1] == b"101":
                return sock, data.partition(b"\r\n\r\n")[2]
            return self._read(sock, data)
        except OSError as error:
            raise ClusterUnreachable(str(error)) from error

    def _read(self, sock: ssl.SSLSocket, data: bytes = b"") -> tuple[int, bytes]:
        while True:
            head, end, body = data.partition(b"\r\n\r\n")
            found = _LENGTH.search(head)
            if end and len(body) >= (int(found[1]) if found else 0):
                break
            piece = sock.recv(65536)
            if not piece:
                raise ConnectionError("the connection was closed in the middle of a response")
            data += piece
        return int(head.split(b" ", 2)[1]), body

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def get_json(self, path: str) -> dict[str, Any] | None:
        """The object at a path, or None if the request fails."""
        status, body = self.get(path)
        if status != 200:
            return None
        try:
            value = json.loads(body)
        except ValueError as error:
            raise ClusterUnreachable("the response is not JSON") from error
        return value if isinstance(value, dict) else None

    def not_ready(self) -> str:
        """The failing checks, for a message."""
        try:
            body = self.get("/readyz")[1].decode(errors="replace")
        except ClusterUnreachable as problem:
            return f"/readyz does not respond: {problem}"
        failed = [line[3:] for line in body.splitlines() if line.startswith("[-]")]
        return ", ".join(failed) or body.strip()[:200]

    def ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except ClusterUnreachable:
            return False
