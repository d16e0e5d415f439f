"""What the web console costs: python benchmarks/console.py --kubeconfig FILE [--events N]

Starts `transom console` for the cluster of a kubeconfig and prints its resident memory over that of
an empty Python program with TLS: idle, with an open Cluster page, after N status changes of a pod,
after a visit to every page, and after the check of a manifest. Doctor runs in a child process; its
peak is printed too. Also the time until doctor's findings are on the page. It creates and deletes
one pod in the namespace default, which no node runs.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from transom.client.kubeconfig import load_kubeconfig

GOAL = 15.0  # MiB over an empty program, also after every page was used
_BARE = """
import asyncio, ssl
context = ssl.create_default_context()
print("ready", flush=True)
asyncio.run(asyncio.sleep(600))
"""
_PAGES = ("/cluster", "/objects", "/objects/core/v1/pods", "/trace", "/why", "/why/doctor")
_MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: true
  nodeSelector: {kubernetes.io/os: windows}
  containers: [{name: web, image: nginx, securityContext: {privileged: true}}]
"""
_MORE_PAGES = ("/why/scenarios", "/why/faults", "/why/timeline/data", "/lint", "/windows")
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "console-benchmark"},
    "spec": {
        "nodeName": "no-such-node",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "pause"}],
    },
}


def resident(pid: int) -> float:
    """MiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield started
    finally:
        started.terminate()
        started.wait(10)


class ChildPeak(threading.Thread):
    """The most memory that the children of a process have together, while it runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._children = Path(f"/proc/{pid}/task/{pid}/children")
        self.peak = 0.0

    def run(self) -> None:
        while self._children.exists():
            try:
                now = sum(resident(int(child)) for child in self._children.read_text().split())
            except OSError:  # it ended meanwhile
                continue
            self.peak = max(self.peak, now)
            time.sleep(0.01)


class LivePage(threading.Thread):
    """Reads the events of the Cluster page as a browser does."""

    def __init__(self, address: str, headers: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection(address, timeout=600)
        self._headers = headers
        self.bytes = 0
        self.problems = threading.Event()

    def run(self) -> None:
        self._connection.request("GET", "/cluster/events", headers=self._headers)
        answer = self._connection.getresponse()
        while line := answer.readline():
            self.bytes += len(line)
            if line.startswith(b"event: problems"):
                self.problems.set()


def change_pod(kubeconfig: Path, count: int) -> None:
    """Creates a pod, changes its status `count` times and deletes it."""
    target = load_kubeconfig(kubeconfig)
    if target.tls is None:
        connection = http.client.HTTPConnection(target.host, target.port)
    else:
        connection = http.client.HTTPSConnection(target.host, target.port, context=target.tls)
    headers = dict(target.request_headers())

    def send(method: str, path: str, body: object, media_type: str) -> None:
        kind = {"Content-Type": f"application/{media_type}"}
        connection.request(method, target.prefix + path, json.dumps(body), headers | kind)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {text.decode()}")

    pods = "/api/v1/namespaces/default/pods"
    send("POST", pods, _POD, "json")
    try:
        for number in range(count):
            status = {"status": {"phase": "Pending", "message": f"change {number}"}}
            path = f"{pods}/console-benchmark/status"
            reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            status["status"]["conditions"] = [reason]  # type: ignore[assignment]
            send("PATCH", path, status, "merge-patch+json")
    finally:
        send("DELETE", f"{pods}/console-benchmark", {}, "json")


def log_in(address: str, path: str) -> dict[str, str]:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", path, headers={"Accept": "text/html"})
    cookie = connection.getresponse().getheader("Set-Cookie") or ""
    return {"Cookie": cookie.partition(";")[0], "Accept": "text/html"}


def visit(address: str, headers: dict[str, str], paths: tuple[str, ...]) -> None:
    for path in paths:
        connection = http.client.HTTPConnection(address, timeout=300)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        print(f"  {path}: {answer.status}")


def check_manifest(address: str, headers: dict[str, str]) -> None:
    """Checks a manifest on the Lint page."""
    connection = http.client.HTTPConnection(address, timeout=300)
    connection.request("GET", "/lint", headers=headers)
    token = re.search(r'name="csrf"[^>]*="([^"]+)"', connection.getresponse().read().decode())
    if token is None:
        raise SystemExit("the Lint page has no CSRF token")
    kind = {"Content-Type": "application/json", "Origin": f"http://{address}"}
    body = json.dumps({"text": _MANIFEST, "release": "1.36"})
    connection.request("POST", "/lint/check", body, headers | kind | {"X-CSRF-Token": token[1]})
    answer = connection.getresponse()
    print(f"  /lint/check: {answer.status}, {len(answer.read())} bytes")


def measure(kubeconfig: Path, events: int) -> float:
    """Prints all figures; returns the largest."""
    with process(sys.executable, "-c", _BARE) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        empty = resident(bare.pid)
    command = ("-m", "transom.cli.main", "console", "--kubeconfig", str(kubeconfig))
    with process(sys.executable, *command) as console:
        assert console.stdout is not None
        link = next(
            found[0] for line in console.stdout if (found := re.search(r"http\S+token=\S+", line))
        )
        where = urlsplit(link)
        peak = ChildPeak(console.pid)
        peak.start()

        def report(what: str) -> float:
            over = resident(console.pid) - empty
            print(f"{what}: {over:.1f} MiB over the {empty:.1f} MiB of an empty program")
            return over

        report("idle")
        headers = log_in(where.netloc, f"{where.path}?{where.query}")
        visit(where.netloc, headers, _PAGES[:1])
        page = LivePage(where.netloc, headers)
        opened = time.perf_counter()
        page.start()
        page.problems.wait(300)
        print(f"doctor's findings after {time.perf_counter() - opened:.1f} s")
        live = report("live page")
        if events:
            before, started = page.bytes, time.perf_counter()
            change_pod(kubeconfig, events)
            took = time.perf_counter() - started
            print(f"{events} changes in {took:.1f} s, {page.bytes - before} bytes for the page")
            live = max(live, report("live page after the changes"))
        print(f"doctor's child process: at most {peak.peak:.1f} MiB, while it runs")
        visit(where.netloc, headers, _PAGES + _MORE_PAGES)
        time.sleep(2)  # the memory of large pages is returned after they were sent
        most = max(live, report("after a visit to every page"))
        check_manifest(where.netloc, headers)
        time.sleep(2)
        return max(most, report("after the check of a manifest"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--events", type=int, default=2000)
    args = parser.parse_args()
    most = measure(args.kubeconfig, args.events)
    print(f"goal: less than {GOAL:.0f} MiB with every page in use: {most:.1f} MiB")
    return 0 if most < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
