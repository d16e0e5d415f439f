"""The server for real clients in its own thread, with TLS and a kubeconfig."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop
from tests.kit.streaming.fake_api import Api

from transom.http import HttpServer, server_context
from transom.kit import pki


@dataclass(frozen=True)
class Served:
    api: Api
    kubeconfig: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("kubectl")
    ca = pki.make_ca("test")
    pki.save_key_pair(ca, folder / "ca.crt", folder / "ca.key")
    pki.save_key_pair(
        pki.issue_server(ca, "api", [], ["127.0.0.1"]), folder / "api.crt", folder / "api.key"
    )
    api = Api()
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = HttpServer(api, server_context(folder / "api.crt", folder / "api.key"))
    port = asyncio.run_coroutine_threadsafe(server.start("127.0.0.1"), loop).result(10)
    config = folder / "config"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "t",
                "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
                "users": [{"name": "t", "user": {"token": "t"}}],
                "clusters": [
                    {
                        "name": "t",
                        "cluster": {
                            "server": f"https://127.0.0.1:{port}",
                            "certificate-authority": str(folder / "ca.crt"),
                        },
                    }
                ],
            }
        )
    )
    yield Served(api, config)
    asyncio.run_coroutine_threadsafe(server.stop(1), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
