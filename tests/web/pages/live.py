"""A console of a real cluster, for tests of pages: over HTTP as a browser would ask, or with one."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.conftest import Cluster

LONG_NAME = (
    "a-pod-whose-name-is-much-longer-than-what-a-column-of-a-table-has-room-for-on-a-small-screen"
)
EVIL = "<img src=x onerror=window.hacked=1>"
OBJECTS = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeSelector: {kubernetes.io/os: windows}
  containers:
  - name: web
    image: mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019
    ports: [{containerPort: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: tools}
spec:
  nodeSelector: {kubernetes.io/os: linux}
  containers: [{name: tools, image: nginx, ports: [{containerPort: 80}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: big}
spec:
  nodeSelector: {kubernetes.io/os: linux}
  containers: [{name: big, image: nginx, resources: {requests: {memory: 2Ti}}}]
---
apiVersion: v1
kind: Namespace
metadata: {name: a-namespace-whose-name-is-nearly-as-long-as-names-may-be}
---
apiVersion: v1
kind: Pod
metadata:
  name: a-pod-whose-name-is-much-longer-than-what-a-column-of-a-table-has-room-for-on-a-small-screen
spec:
  nodeSelector: {kubernetes.io/os: linux}
  containers: [{name: c, image: registry.example.com/a/repository/with/a/very/long/path/nginx}]
---
apiVersion: v1
kind: Event
metadata: {name: evil}
involvedObject: {kind: Pod, namespace: default, name: web}
reason: Evil
message: "<img src=x onerror=window.hacked=1>"
type: Warning
firstTimestamp: "2026-01-01T00:00:00Z"
lastTimestamp: "2026-01-01T00:00:00Z"
"""

# More to see, for pictures of the documentation.
MORE_OBJECTS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {app: shop}}
spec:
  replicas: 14
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      nodeSelector: {kubernetes.io/os: windows}
      containers:
      - name: iis
        image: mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019
        ports: [{containerPort: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api}
spec:
  replicas: 10
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      containers: [{name: api, image: nginx, ports: [{containerPort: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: api}
spec: {selector: {app: api}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: oops}
spec: {nodeName: windows-2, containers: [{name: oops, image: nginx}]}
"""


@dataclass
class ConsoleBrowser:
    """Requests of a logged-in browser, without JavaScript."""

    origin: str
    cookie: str = ""
    csrf: str = ""
    link: str = field(default="", repr=False)

    def request(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        where = urlsplit(self.origin)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        every = {"Cookie": self.cookie, "Accept": "text/html", "Origin": self.origin}
        every |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, every)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, dict(answer.getheaders())

    def page(self, path: str, status: int = 200) -> str:
        code, text, _ = self.request("GET", path)
        assert code == status, text
        return text

    def get_json(self, path: str) -> Any:
        code, text, _ = self.request("GET", path, Accept="application/json")
        assert code == 200, text
        return json.loads(text)

    def post_json(self, path: str, value: Any, status: int = 200) -> Any:
        headers = {"Content_Type": "application/json", "X_CSRF_Token": self.csrf}
        body = json.dumps(value).encode()
        code, text, _ = self.request("POST", path, body, Accept="application/json", **headers)
        assert code == status, text
        return json.loads(text)

    def post_form(self, path: str, **values: str) -> int:
        body = urlencode({"csrf": self.csrf, **values}).encode()
        kind = "application/x-www-form-urlencoded"
        return self.request("POST", path, body, Content_Type=kind)[0]

    def log_in(self) -> None:
        _, _, headers = self.request("GET", self.link.removeprefix(self.origin))
        self.cookie = headers["Set-Cookie"].partition(";")[0]
        found = re.search(r'name="csrf-token" content="([^"]+)"', self.page("/windows"))
        assert found is not None
        self.csrf = found[1]


@contextmanager
def running_console(cluster: Cluster) -> Iterator[ConsoleBrowser]:
    """`transom console` of a cluster; the browser has a login link that is not used yet."""
    command = [sys.executable, "-m", "transom.cli.main", "console"]
    command += ["--kubeconfig", str(cluster.kubeconfig)]
    process = subprocess.Popen(
        command,
        env=cluster.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        link = ""
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http\S+/login\?token=\S+", line):
                link = found[0]
                break
        assert link, "the console printed no login link"
        yield ConsoleBrowser(link.partition("/login")[0], link=link)
    finally:
        process.terminate()
        process.wait(10)


def chromium_path() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")
