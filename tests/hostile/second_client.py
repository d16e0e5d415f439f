"""A client that sends small requests continuously, in its own process, and reports their latency.

Usage: python -m tests.hostile.second_client KUBECONFIG; closing its standard input ends it. It
prints one JSON list of seconds.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

from tests.hostile.client import Client, Endpoint

PAUSE = 0.01


def main() -> None:
    client = Client(Endpoint(Path(sys.argv[1])))
    client.ok("GET", "/api/v1/namespaces/default")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    latencies: list[float] = []
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        began = time.perf_counter()
        client.ok("GET", "/api/v1/namespaces/default")
        latencies.append(time.perf_counter() - began)
    sys.stdout.write(json.dumps(latencies) + "\n")


if __name__ == "__main__":
    main()
