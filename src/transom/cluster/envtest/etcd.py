"""The program `etcd` of envtest: `python -m transom.cluster.envtest.etcd FLAGS`.

It stores nothing: the API server keeps its objects in the data directory of this program, and this
program answers with the path of that directory. A file marks the directory, so that no other server
can name one. It imports nothing else of Transom, so that it starts at once.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

from transom.cluster.envtest.flags import GoFlags, flags_help, parse_go_flags

DATA_DIR_PATH = "/transom/data-dir"
MARKER = "transom-etcd"
_FLAGS = {
    "advertise-client-urls": "the addresses for clients (default: those of --listen-client-urls)",
    "data-dir": "the folder for the objects of the API server",
    "listen-client-urls": "the address to listen on (default http://localhost:2379)",
    "listen-peer-urls": "accepted; there are no other members",
    "name": "accepted; there are no other members",
    "unsafe-no-fsync": "accepted; the API server writes the data",
}
_SWITCHES = ("unsafe-no-fsync",)
_LISTEN = "http://localhost:2379"
_MAX_HEAD = 64 * 1024
_SECONDS = 10.0  # for one request


class EtcdStandIn:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request for each connection."""
        try:
            async with asyncio.timeout(_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode(errors="replace")
                status, body = self._response(path)
                begin = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n"
                writer.write(begin.encode() + b"Connection: close\r\n\r\n" + body)
                await writer.drain()
        except (OSError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # not HTTP, or the client is slow or has gone
        finally:
            writer.close()

    def _response(self, path: str) -> tuple[str, bytes]:
        if path == "/health":
            return "200 OK", b'{"health":"true","reason":""}'
        if path == "/version":
            return "200 OK", b'{"etcdserver":"3.5.0","etcdcluster":"3.5.0"}'
        if path == DATA_DIR_PATH:
            return "200 OK", str(self._data_dir).encode()
        return "404 Not Found", b"404 page not found\n"


async def _serve(flags: GoFlags, data_dir: Path) -> None:
    urls = flags.words("listen-client-urls")
    listen = urlsplit(urls[0] if urls else _LISTEN)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stand_in = EtcdStandIn(data_dir)
    server = await asyncio.start_server(
        stand_in.answer, listen.hostname, listen.port, limit=_MAX_HEAD
    )
    await stopping.wait()
    server.close()  # without waiting for idle clients


def main() -> int:
    arguments = sys.argv[1:]
    if {"--help", "-h"} & set(arguments):
        sys.stdout.write(flags_help("etcd", "Replaces etcd in tests on Transom.", _FLAGS))
        return 0
    try:
        flags = parse_go_flags(arguments, _SWITCHES)
    except ValueError as problem:
        sys.stderr.write(f"etcd: {problem}\n")
        return 2
    data_dir = Path(flags.get("data-dir", "default.etcd")).absolute()
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        (data_dir / MARKER).touch(mode=0o600)
        asyncio.run(_serve(flags, data_dir))
    except (OSError, ValueError, OverflowError) as problem:
        sys.stderr.write(f"etcd: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
