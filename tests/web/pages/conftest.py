"""One cluster and one console for all tests of pages; the cluster has the objects of `live`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from tests.conftest import Cluster, kubectl_binaries, running_cluster
from tests.web.pages.live import MORE_OBJECTS, OBJECTS, ConsoleBrowser, running_console


@pytest.fixture(scope="session")
def page_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    folder = tmp_path_factory.mktemp("console")
    pictures = bool(os.environ.get("TRANSOM_SCREENSHOTS"))
    count = "3" if pictures else "1"
    with running_cluster(folder, "--linux", count, "--windows", count) as cluster:

        def kubectl(*args: str, stdin: str = "") -> None:
            subprocess.run(
                [binaries[0], *args],
                env=cluster.env,
                input=stdin,
                text=True,
                check=True,
                capture_output=True,
                timeout=90,
            )

        kubectl("apply", "-f", "-", stdin=OBJECTS)
        kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/web", "pod/tools")
        kubectl("wait", "--for=condition=PodScheduled=False", "--timeout=60s", "pod/big")
        if pictures:
            kubectl("apply", "-f", "-", stdin=MORE_OBJECTS)
            kubectl("rollout", "status", "deployment/shop", "--timeout=80s")
            kubectl("rollout", "status", "deployment/api", "--timeout=80s")
        yield cluster


@pytest.fixture(scope="session")
def console(page_cluster: Cluster) -> Iterator[ConsoleBrowser]:
    with running_console(page_cluster) as browser:
        browser.log_in()
        yield browser
