"""A registry of a few images made of busybox, for a runtime that can reach nothing else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import socket
import tarfile
import threading
from collections.abc import Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER, PASSWORD = "someone", "secret"
BUSYBOX = Path("/bin/busybox")
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_APPLETS = (
    "cat",
    "echo",
    "head",
    "hostname",
    "httpd",
    "id",
    "nc",
    "sh",
    "sleep",
    "stty",
    "touch",
    "tty",
)
_PASSWD = b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home:/bin/sh\n"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@cache
def _layer() -> bytes:
    """Uncompressed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:

        def add(name: str, data: bytes = b"", **fields: Any) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o755
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(data))

        for folder in ("bin", "etc", "home", "proc", "root", "sys", "tmp"):
            add(folder, type=tarfile.DIRTYPE)
        add("etc/passwd", _PASSWD)
        add("bin/busybox", BUSYBOX.read_bytes())
        for applet in _APPLETS:
            add(f"bin/{applet}", type=tarfile.SYMTYPE, linkname="busybox")
    return out.getvalue()


class Registry:
    """Names that begin with `private/` are for `USER` only. `images` are (name, tag,
    entrypoint).
    """

    def __init__(
        self, listener: socket.socket, images: Sequence[tuple[str, str, Sequence[str]]]
    ) -> None:
        self._blobs: dict[str, bytes] = {}
        self._manifests: dict[tuple[str, str], bytes] = {}
        for name, tag, entrypoint in images:
            self._add(name, tag, entrypoint)
        self._server = ThreadingHTTPServer(("", 0), self._handler(), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _add(self, name: str, tag: str, entrypoint: Sequence[str]) -> None:
        packed = gzip.compress(_layer(), 1, mtime=0)
        document = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(_layer())]},
        }
        config = json.dumps(document).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": {"mediaType": _CONFIG, "digest": digest(config), "size": len(config)},
                "layers": [{"mediaType": _LAYER, "digest": digest(packed), "size": len(packed)}],
            }
        ).encode()
        self._blobs |= {digest(packed): packed, digest(config): config}
        self._manifests |= {(name, tag): manifest, (name, digest(manifest)): manifest}

    def _answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        parts = path.partition("?")[0].strip("/").split("/")
        if parts == ["v2"]:
            return 200, "application/json", b"{}"
        name, kind, what = "/".join(parts[1:-2]), parts[-2], parts[-1]
        known = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if name.startswith("private/") and authorization != f"Basic {known}":
            return 401, "text/plain", b"who are you?"
        found = self._manifests.get((name, what)) if kind == "manifests" else self._blobs.get(what)
        if found is None:
            return 404, "text/plain", b"no such thing"
        return 200, _MANIFEST if kind == "manifests" else "application/octet-stream", found

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = registry._answer(
                    self.path, self.headers.get("Authorization", "")
                )
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                if status == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="registry"')
                elif status == 200:
                    self.send_header("Docker-Content-Digest", digest(body))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        return Handler
