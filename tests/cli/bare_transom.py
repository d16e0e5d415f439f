"""The command line with an API server that is only ever ready: the verbs are tested without the rest of the house.

BARE_FAIL in the environment makes it fail at its start.
"""

from __future__ import annotations

import os
import sys

from transom.cli.main import main
from transom.cluster import run
from transom.http import Request, Response


class Bare:
    def handler(self, request: Request) -> Response:
        if request.path == "/transom/nodes":
            return Response(200, [(b"Content-Type", b"application/json")], b'{"items": []}')
        found = request.path == "/readyz"
        return Response(200 if found else 404, [(b"Content-Type", b"text/plain")], b"ok" if found else b"not found")

    async def start(self) -> None:
        if "BARE_FAIL" in os.environ:
            raise RuntimeError("the store is on fire")

    async def stop(self) -> None:
        return None


if __name__ == "__main__":
    run._build = lambda *_parts: Bare()
    run._components = lambda api, config, pki: ({}, {})
    run._nodes = lambda config, pki: None
    sys.exit(main())
