"""How long `transom lint` takes for a repository: python benchmarks/lint.py [DOCUMENTS | FOLDER]

Without a folder it writes one: pods, deployments and services for both systems, a document of about
2 KB each, ten to a file. It prints the times of reading, parsing and checking in this process, and of
the whole command from start to end.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from transom.lint.config import LintConfig
from transom.lint.engine import lint_sources
from transom.lint.objects import manifest_objects
from transom.lint.sources import read_sources
from transom.windows.target_nodes import target_nodes_from_options

GOAL = 2.0  # seconds for a thousand documents

_DOCUMENT = """\
# Document {i}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-{i}
  namespace: shop
  labels: &labels
    app.kubernetes.io/name: web-{i}
    app.kubernetes.io/part-of: shop
spec:
  replicas: 3
  selector:
    matchLabels:
      app: web-{i}
  template:
    metadata:
      labels:
        app: web-{i}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "9100"
    spec:
      nodeSelector:
        kubernetes.io/os: {os}
      serviceAccountName: web
      securityContext:
        fsGroup: 1000
      containers:
{containers}
      volumes:
      - name: config
        configMap:
          name: web-{i}
      - name: data
        emptyDir: {{}}
"""
_CONTAINER = """\
      - name: {name}
        image: example.com/shop/{name}:1.0
        args: ["--config=/config/app.yaml", "--listen=:8080", "--log-level=info"]
        ports:
        - name: http
          containerPort: 8080
        env:
        - name: DATABASE_URL
          value: postgres://db.data.svc.cluster.local:5432/shop
        - name: POD_NAME
          valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}
        resources:
          limits: {{cpu: 500m, memory: 512Mi}}
          requests: {{cpu: 100m, memory: 512Mi}}
        readinessProbe:
          httpGet: {{path: /healthz, port: http}}
        securityContext:
          readOnlyRootFilesystem: true
          allowPrivilegeEscalation: false
        volumeMounts:
        - {{name: config, mountPath: /config}}
"""


def write(folder: Path, count: int) -> None:
    for start in range(0, count, 10):
        body = "---\n".join(
            _DOCUMENT.format(
                i=i,
                os="windows" if i % 4 == 0 else "linux",
                containers="".join(
                    _CONTAINER.format(name=name) for name in ("web", "proxy")
                ).rstrip("\n"),
            )
            for i in range(start, min(start + 10, count))
        )
        (folder / f"{start:05}.yaml").write_text(body)


def measure(folder: Path) -> float:
    gc.disable()
    began = time.perf_counter()
    reading = read_sources([str(folder)])
    at_read = time.perf_counter()
    count = sum(1 for source in reading.sources for _ in manifest_objects(source))
    at_parsed = time.perf_counter()
    report = lint_sources(reading, target_nodes_from_options(), LintConfig())
    at_end = time.perf_counter()
    gc.enable()
    size = sum(len(source.text.text) for source in reading.sources)
    print(
        f"{count} objects in {len(reading.sources)} files, {size / 1e6:.1f} MB; "
        f"{len(report.findings)} findings"
    )
    parse = at_parsed - at_read
    print(
        f"read {at_read - began:.2f} s, parse {parse:.2f} s, judge "
        f"{at_end - at_parsed - parse:.2f} s"
    )
    began = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "transom.cli.main",
        "lint",
        "--no-config",
        "--output",
        "json",
        str(folder),
    ]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    whole = time.perf_counter() - began
    print(f"the command: {whole:.2f} s, {1000 * whole / max(1, count):.2f} ms an object")
    return whole


def main() -> int:
    requested = sys.argv[1] if len(sys.argv) > 1 else "1000"
    if not requested.isdigit():
        measure(Path(requested))
        return 0
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), int(requested))
        whole = measure(Path(name))
    return 0 if whole < GOAL * max(1, int(requested) / 1000) else 1


if __name__ == "__main__":
    sys.exit(main())
