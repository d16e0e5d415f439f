"""What requests and the start cost in two checkouts of Transom, on a machine that may be busy.

Usage: python benchmarks/compare.py BASE [CHECKOUT] [--rounds N] [--only requests|start] [--most R]

BASE and CHECKOUT (default: this one) are worktrees with a virtual environment in .venv. For
requests, `transom apiserver --no-nodes` of each runs in turn; a client sends the same requests
over HTTPS. The server counts the Python bytecodes of its event loop's thread, which hardly depend
on the machine, and the process's CPU time is read without that counter. For the start, `transom up`
of both runs alternately: the CPU time of the command, of the server when it reports that it is
ready (on a busy machine the command returns much later), and of the server some seconds later.
Figures are medians of the rounds.

The exit code is 1 if a figure is more than R times that of BASE.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import resource
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

OWN = Path(__file__).resolve().parent.parent
SETTLE = 4.0  # seconds after the start until the components have been imported
WARM, TRACED, TIMED = 40, 40, 300
WATCHERS, EVENTS = 50, 40
CORE = "/api/v1/namespaces/default"
# Runs in the server before anything else: counts the bytecodes of the main thread between two
# signals, and writes the number into a file.
COUNTER = """
import os, signal, sys, threading
count = 0
def local(frame, event, argument):
    global count
    if event == "opcode":
        count += 1
    return local
def trace(frame, event, argument):
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    return local
def start(*_):
    global count
    count = 0
    sys.settrace(trace)
def stop(*_):
    sys.settrace(None)
    with open(os.environ["COUNTED"] + ".new", "w") as file:
        file.write(str(count))
    os.rename(os.environ["COUNTED"] + ".new", os.environ["COUNTED"])
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, stop)
"""
# The same for the start: writes the CPU time of the server when it reports that it is ready.
READY_WATCH = """
import os, time
write = os.write
def watch(descriptor, data):
    if bytes(data) == b"ready\\n":
        with open(os.environ["READY"], "w") as file:
            file.write(str(time.process_time()))
    return write(descriptor, data)
os.write = watch
"""


def environment(folder: Path) -> dict[str, str]:
    """Of processes that keep everything in this folder, and compiled modules with the code."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
    return kept | own | {"KUBECONFIG": str(folder / "kubeconfig"), "PYTHONHASHSEED": "0"}


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process, also those that have ended."""
    return time.clock_gettime((~pid << 3) | 2)


class Client:
    """One connection with the administrator's certificate."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]))
            pair.flush()
            self.context.load_cert_chain(pair.name)
        self.address = cluster["server"].removeprefix("https://")
        self.connection = self.connect()

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.address, context=self.context, timeout=60)

    def send(self, method: str, path: str, body: Any = None, media: str = "json") -> Any:
        headers = {"Content-Type": f"application/{media}", "User-Agent": "compare/1"}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self.connection.getresponse()
        content = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {content.decode()}")
        return json.loads(content)


class Server:
    """`transom apiserver` of a checkout."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(COUNTER)
        self._counted = folder / "counted"
        more = {"PYTHONPATH": str(folder), "COUNTED": str(self._counted)}
        kubeconfig = folder / "kubeconfig"
        command = [checkout / ".venv/bin/transom", "apiserver", "--no-nodes", "--name", "compare"]
        self._process = subprocess.Popen(
            [*map(str, command), "--kubeconfig", str(kubeconfig)],
            env=environment(folder) | more,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.client = self._first_client(kubeconfig)
        time.sleep(SETTLE)

    def _first_client(self, kubeconfig: Path) -> Client:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                client = Client(kubeconfig)
                client.send("GET", "/version")
                client.send("GET", f"{CORE}/serviceaccounts/default")
                return client
            except (OSError, SystemExit, TypeError, KeyError):
                time.sleep(0.2)
        raise SystemExit("the server does not start")

    def cpu(self) -> float:
        return cpu_seconds(self._process.pid)

    def bytecodes(self, run: Callable[[], None]) -> int:
        self._process.send_signal(signal.SIGUSR1)
        self.client.send("GET", "/version")  # the handler runs with the next bytecode
        run()
        self._process.send_signal(signal.SIGUSR2)
        self.client.send("GET", "/version")
        deadline = time.monotonic() + 10
        while not self._counted.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        counted = int(self._counted.read_text())
        self._counted.unlink()
        return counted

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@contextmanager
def started(checkout: Path) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(checkout, Path(folder))
        try:
            yield server
        finally:
            server.stop()


def new_object(resource: str, name: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {"app": "bench", "verb": "create"}}
    if resource == "configmaps":
        return {"metadata": meta, "data": {"text": "x" * 1000, "number": "1"}}
    container = {
        "name": "main",
        "image": "registry.example/app:1.0",
        "env": [{"name": f"VARIABLE_{number}", "value": "value"} for number in range(10)],
        "ports": [{"containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    # Not for our scheduler, which would add its own work
    return {"metadata": meta, "spec": {"schedulerName": "other", "containers": [container]}}


def send_verb(client: Client, verb: str, resource: str, name: str) -> None:
    path = f"{CORE}/{resource}"
    if verb == "create":
        client.send("POST", path, new_object(resource, name))
    elif verb == "get":
        client.send("GET", f"{path}/{name}")
    elif verb == "list":
        client.send("GET", f"{path}?limit=500")
    elif verb == "patch":
        patch = {"metadata": {"labels": {"verb": verb}}}
        client.send("PATCH", f"{path}/{name}", patch, "merge-patch+json")
    elif verb == "update":  # includes a GET
        found = client.send("GET", f"{path}/{name}")
        found["metadata"]["labels"]["verb"] = verb
        client.send("PUT", f"{path}/{name}", found)
    else:
        client.send("DELETE", f"{path}/{name}?gracePeriodSeconds=0")


def open_watches(client: Client, count: int) -> list[http.client.HTTPResponse]:
    responses = []
    for _ in range(count):
        connection = client.connect()
        connection.request("GET", f"{CORE}/configmaps?watch=true")
        response = connection.getresponse()
        response.connection = connection  # type: ignore[attr-defined]
        responses.append(response)
    return responses


def measure_requests(checkout: Path) -> dict[str, float]:
    """Bytecodes and CPU microseconds of each verb."""
    figures: dict[str, float] = {}
    with started(checkout) as server:
        client = server.client
        for resource in ("configmaps", "pods"):
            for verb in ("create", "get", "list", "patch", "update", "delete"):

                def run(first: int, count: int, verb: str = verb, kind: str = resource) -> None:
                    for number in range(first, first + count):
                        send_verb(client, verb, kind, f"o{number}")

                timed = TIMED if verb != "list" else TIMED // 10
                run(0, WARM)
                empty = server.bytecodes(lambda: None)
                counted = server.bytecodes(lambda: run(WARM, TRACED))
                figures[f"{verb} {resource}, bytecodes"] = (counted - empty) / TRACED
                before = server.cpu()
                run(WARM + TRACED, timed)
                figures[f"{verb} {resource}, CPU us"] = (server.cpu() - before) / timed * 1e6
        watches = open_watches(client, WATCHERS)
        for name in ("warm", "event"):
            before = server.cpu()
            for number in range(EVENTS):
                client.send(
                    "POST", f"{CORE}/configmaps", new_object("configmaps", f"{name}{number}")
                )
                for response in watches:
                    while f'"{name}{number}"'.encode() not in response.readline():
                        pass
            used = server.cpu() - before
        figures["event to a watcher, CPU us"] = used / EVENTS / WATCHERS * 1e6

        def create_many() -> None:
            for number in range(EVENTS):
                client.send("POST", f"{CORE}/configmaps", new_object("configmaps", f"b{number}"))

        empty = server.bytecodes(lambda: None)
        counted = server.bytecodes(create_many)
        figures[f"create with {WATCHERS} watchers, bytecodes"] = (counted - empty) / EVENTS
        for response in watches:
            response.connection.close()  # type: ignore[attr-defined]
    return figures


def measure_start(checkout: Path, options: list[str]) -> dict[str, float]:
    """CPU milliseconds of `transom up` and its server, and the server's memory."""
    with tempfile.TemporaryDirectory() as folder:
        env = environment(Path(folder)) | {"PYTHONPATH": folder, "READY": f"{folder}/ready"}
        Path(folder, "sitecustomize.py").write_text(READY_WATCH)
        command = str(checkout / ".venv/bin/transom")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [command, "up", "--name", "compare", *options],
            env=env,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        pid = next(pid for pid in processes() if environment_has(pid, f"HOME={folder}"))
        ready = float(Path(folder, "ready").read_text())
        time.sleep(SETTLE)
        settled = cpu_seconds(pid)
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        subprocess.run([command, "delete", "--name", "compare"], env=env, capture_output=True)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    kind = "without nodes" if "--no-nodes" in options else "four nodes"
    return {
        f"up, {kind}: command, CPU ms": used * 1000,
        f"up, {kind}: server until ready, CPU ms": ready * 1000,
        f"up, {kind}: server until idle, CPU ms": settled * 1000,
        f"up, {kind}: RSS, MiB": int(status["VmRSS"].split()[0]) / 1024,
    }


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def environment_has(pid: int, text: str) -> bool:
    try:
        return text.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def compare(
    checkouts: list[Path], rounds: int, measure: Callable[[Path], dict[str, float]]
) -> float:
    """Prints the medians; returns the largest ratio."""
    found: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
    for number in range(rounds):
        for checkout in checkouts if number % 2 else reversed(checkouts):
            found[checkout].append(measure(checkout))
    worst = 0.0
    for name in found[checkouts[0]][0]:
        base, own = (
            statistics.median(figures[name] for figures in found[checkout])
            for checkout in checkouts
        )
        worst = max(worst, own / base)
        print(f"{name:48}{base:10.1f}{own:10.1f}{own / base:8.3f}", flush=True)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("checkout", type=Path, nargs="?", default=OWN)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("requests", "start"))
    parser.add_argument("--most", type=float, default=float("inf"))
    args = parser.parse_args()
    checkouts = [args.base.resolve(), args.checkout.resolve()]
    worst = 0.0
    if args.only != "start":
        worst = max(worst, compare(checkouts, args.rounds, measure_requests))
    if args.only != "requests":
        for options in ([], ["--no-nodes"]):
            for checkout in checkouts:
                measure_start(checkout, options)  # compiles its modules

            def measure(checkout: Path, options: list[str] = options) -> dict[str, float]:
                return measure_start(checkout, options)

            worst = max(worst, compare(checkouts, args.rounds, measure))
    return int(worst > args.most)


if __name__ == "__main__":
    sys.exit(main())
