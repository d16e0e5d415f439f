"""A token issuer and an authorization webhook on loopback, with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from transom.kit.jws import base64url_encode, public_key
from transom.kit.pki import KeyPair, issue_server, make_ca

Answer = tuple[int, Any]


class SigningKey:
    """A key with an id; signs tokens with any algorithm of its family."""

    def __init__(self, kid: str, kind: str = "EC") -> None:
        self.kid = kid
        self.private: Any = (
            ec.generate_private_key(ec.SECP256R1())
            if kind == "EC"
            else rsa.generate_private_key(65537, 2048)
        )

    def jwk(self) -> dict[str, str]:
        made = public_key(self.private.public_key()).jwk()
        del made["alg"]
        return {**made, "kid": self.kid}

    def sign(self, claims: dict[str, Any], algorithm: str = "") -> str:
        is_ec = isinstance(self.private, ec.EllipticCurvePrivateKey)
        name = algorithm or ("ES256" if is_ec else "RS256")
        header = {"alg": name, "kid": self.kid}
        text = ".".join(base64url_encode(json.dumps(part).encode()) for part in (header, claims))
        if is_ec:
            r, s = decode_dss_signature(self.private.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
            signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        elif name == "PS512":
            salted = padding.PSS(padding.MGF1(hashes.SHA512()), hashes.SHA512.digest_size)
            signature = self.private.sign(text.encode(), salted, hashes.SHA512())
        else:
            signature = self.private.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{base64url_encode(signature)}"


class LoopbackServer:
    """Answers requests with `handle(method, path, body)`, one per connection."""

    def __init__(self, handle: Callable[[str, str, bytes], Answer], ca: KeyPair) -> None:
        self._handle = handle
        self._ca = ca
        self.requests: list[tuple[str, str, Any]] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[LoopbackServer]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = issue_server(self._ca, "loopback", ["localhost"], ["127.0.0.1"])
        with tempfile.TemporaryDirectory() as folder:
            cert, key = Path(folder) / "cert", Path(folder) / "key"
            cert.write_bytes(pair.certificate)
            key.write_bytes(pair.key)
            context.load_cert_chain(cert, key)
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (ConnectionError, asyncio.IncompleteReadError):  # the client does not trust us
            writer.close()
            return
        method, path, _ = head.split("\r\n")[0].split(" ")
        length = next(
            (
                int(line.partition(":")[2])
                for line in head.split("\r\n")
                if line.lower().startswith("content-length:")
            ),
            0,
        )
        body = await reader.readexactly(length)
        self.requests.append((method, path, json.loads(body) if body else None))
        status, answer = self._handle(method, path, body)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
            + data
        )
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


class TokenIssuerServer(LoopbackServer):
    """An OpenID Connect issuer; `keys` may change."""

    def __init__(self, ca: KeyPair, *keys: SigningKey) -> None:
        super().__init__(self._answer, ca)
        self.keys = list(keys)
        self.more_keys: list[Any] = []
        self.broken = False

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def _answer(self, method: str, path: str, body: bytes) -> Answer:
        if self.broken:
            return 500, {"error": "broken"}
        if path == "/jwks":
            return 200, {"keys": [*self.more_keys, *(key.jwk() for key in self.keys)]}
        if path in ("/.well-known/openid-configuration", "/elsewhere"):
            return 200, {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}
        return 404, {}


def new_ca() -> KeyPair:
    return make_ca("tests")
