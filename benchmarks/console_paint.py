"""How fast the console is on the screen: python benchmarks/console_paint.py --kubeconfig FILE

Opens each page in Chromium and prints the time until its first contentful paint, and the CPU time of
the browser's main thread, which does not depend on what else the machine does. Then it creates pods
and prints the time from the moment the API server has answered until the Cluster page has drawn
them. The machine's load is printed, because times of a busy machine say little. It creates and
deletes pods in the namespace default, which no node runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from transom.client.kubeconfig import load_kubeconfig

PAINT_GOAL = 300.0  # milliseconds
UPDATE_GOAL = 200.0
_PAGES = ("/cluster", "/objects", "/trace", "/why", "/why/timeline", "/lint", "/windows")
_PODS = "/api/v1/namespaces/default/pods"
# The moment after the frame that draws a pod. Date.now() of a page is the clock of this machine.
_WATCH = """() => {
  window.drawnAt = {};
  const { model } = window.transomPicture;
  const look = () => {
    for (const key of model.pods.keys()) window.drawnAt[key] ??= Date.now();
    requestAnimationFrame(look);
  };
  look();
}"""
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    browser_path = shutil.which("chromium")
    if browser_path is None:
        raise SystemExit("needs chromium")
    console = subprocess.Popen(
        [sys.executable, "-m", "transom.cli.main", "console", "--kubeconfig", args.kubeconfig],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert console.stdout is not None
    try:
        text = next(line for line in console.stdout if "/login?token=" in line)
        found = re.search(r"http\S+", text)
        assert found is not None
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        print(f"load {load:.1f} on {cores} cores" + ("" if load < cores else ": busy"))
        with sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_context(viewport={"width": 1360, "height": 850}).new_page()
            page.goto(found[0])
            origin = found[0].partition("/login")[0]
            paint_pages(page, origin, args.rounds)
            update_picture(page, origin, args.kubeconfig, args.rounds)
            browser.close()
    finally:
        console.terminate()
        console.wait(10)


def paint_pages(page: Any, origin: str, rounds: int) -> None:
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cpu() -> float:
        rows = metrics.send("Performance.getMetrics")["metrics"]
        return 1000 * float(next(row["value"] for row in rows if row["name"] == "TaskDuration"))

    for path in _PAGES:
        paints, costs = [], []
        for _ in range(rounds):
            page.goto("about:blank")
            before = cpu()
            page.goto(origin + path)
            page.wait_for_timeout(500)
            costs.append(cpu() - before)
            if (painted := page.evaluate(_PAINT)) is not None:
                paints.append(float(painted))
        verdict = "" if min(paints) < PAINT_GOAL else f": not under {PAINT_GOAL:.0f} ms"
        print(
            f"{path}: first paint {statistics.median(paints):.0f} ms (least {min(paints):.0f})"
            f"{verdict}; main thread {min(costs):.0f} ms of CPU"
        )


def update_picture(page: Any, origin: str, kubeconfig: Path, rounds: int) -> None:
    target = load_kubeconfig(kubeconfig)
    top = f"https://{target.host}:{target.port}{target.prefix}{_PODS}"
    headers = {**dict(target.request_headers()), "Content-Type": "application/json"}

    def send(method: str, url: str, body: object) -> None:
        data = json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, context=target.tls) as answer:
            answer.read()

    page.goto(f"{origin}/cluster")
    page.wait_for_selector('#live[data-state="live"]')
    page.evaluate(_WATCH)
    times = []
    for number in range(rounds):
        name = f"console-paint-{os.getpid()}-{number}"
        container = {"name": "c", "image": "pause"}
        spec = {"nodeName": "no-such-node", "containers": [container]}
        send("POST", top, {"metadata": {"name": name}, "spec": spec})
        answered = 1000 * time.time()
        page.wait_for_timeout(1000)
        drawn = page.evaluate("name => window.drawnAt[`default/${name}`] ?? null", name)
        send("DELETE", f"{top}/{name}", {"gracePeriodSeconds": 0})
        if drawn is None:
            raise SystemExit(f"pod {name} is not in the picture after a second")
        times.append(drawn - answered)
    verdict = "" if statistics.median(times) < UPDATE_GOAL else f": not under {UPDATE_GOAL:.0f} ms"
    print(
        f"update: drawn {statistics.median(times):.0f} ms after the answer of the API server "
        f"(most {max(times):.0f}){verdict}"
    )


if __name__ == "__main__":
    main()
