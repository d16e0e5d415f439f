"""Shared by all tests: a real cluster for the session, and every available kubectl.

`cluster` boots `transom up --no-nodes` with directories and a kubeconfig of its own, so that it
meets no other cluster of the person who runs the tests.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.etcd_process import EtcdProcess, require_etcd

from transom.kit.loop_watchdog import DEFAULT_BUDGET, MARK, LongCallback, exact_watch

ROOT = Path(__file__).parent.parent
# How many times the loop budget a callback may use in a test. On shared cores the CPU time of the
# same work varies by a factor of two, and a mistake that this check is for (work that grows with
# the input) exceeds the budget by far more. `make hostile` allows the budget itself.
LOOP_BUDGET = DEFAULT_BUDGET * float(os.environ.get("TRANSOM_LOOP_MARGIN", "4"))

# How long an example takes says more about the machine than about the code. A run tries the same
# examples as the one before, so that what fails has to do with what was changed; `pytest
# --hypothesis-profile=explore` looks for new ones.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True)
settings.load_profile("same")

# Few and long, and most of it is waiting: begun first, they do not keep one worker busy when the
# others are done.
_LONGEST = ("tests/docs/test_commands.py", "tests/e2e/test_recorded_answers.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


def pytest_collection_finish() -> None:
    """The modules and items of all tests stay until the end: the garbage collector need not look at
    them again, and the rest is collected less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


# Seconds after its time limit until a test that cannot be interrupted ends its worker.
_LAST_RESORT = 60.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Ends the process if a test goes on long after its time limit; the stacks of all threads are
    in .tools/hung-WORKER.txt. pytest-timeout raises an exception, which some waits never see, and
    one such test would stop the whole run.
    """
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout") or 120)
    stacks = ROOT / ".tools" / f"hung-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.txt"
    stacks.parent.mkdir(exist_ok=True)
    with stacks.open("w") as file:
        faulthandler.dump_traceback_later(limit + _LAST_RESORT, exit=True, file=file)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
            stacks.unlink(missing_ok=True)


# What fixtures return that start something with the arguments of a test: `async with node("linux")`.
ContextFactory = Callable[..., AbstractAsyncContextManager[Any]]

# The event loops that async tests run on; a module or directory overrides `anyio_backend`.
Backend = tuple[str, dict[str, object]]
UVLOOP: Backend = ("asyncio", {"use_uvloop": True})


@pytest.fixture
def anyio_backend() -> Backend:
    return "asyncio", {}


@dataclass(frozen=True)
class Cluster:
    name: str
    kubeconfig: Path
    env: dict[str, str]

    def transom(
        self, *args: str, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "transom.cli.main", *args]
        return subprocess.run(
            command, env=self.env, check=check, capture_output=True, text=True, timeout=timeout
        )


@dataclass(frozen=True)
class Kubectl:
    binary: str
    cluster: Cluster

    def __call__(
        self, *args: str, stdin: str | None = None, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.binary, *args],
            env=self.cluster.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"kubectl {' '.join(args)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done


@pytest.fixture(autouse=True)
def loop_budget(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which an event loop callback uses more CPU time than the budget; see
    docs/hostile-input.md.
    """
    marker = request.node.get_closest_marker("loop_budget")
    budget = LOOP_BUDGET if marker is None else marker.args[0]
    if budget is None:
        yield
        return
    found: list[LongCallback] = []
    with exact_watch(budget, found.append):
        yield
    if found:
        pytest.fail("\n".join(long.describe(budget) for long in found), pytrace=False)


def _isolated(folder: Path) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in ("KUBECONFIG", "XDG_DATA_HOME")}
    env["HOME"] = str(folder / "home")
    env["XDG_DATA_HOME"] = str(folder / "data")
    env["NO_COLOR"] = "1"
    (folder / "home").mkdir(exist_ok=True)
    return env


@pytest.fixture
def isolated_environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing of the user's own clusters is visible."""
    return _isolated(tmp_path)


@contextmanager
def running_cluster(folder: Path, *options: str) -> Iterator[Cluster]:
    """A cluster of this folder alone, for as long as the context lasts."""
    kubeconfig = folder / "kubeconfig"
    env = {**_isolated(folder), "KUBECONFIG": str(kubeconfig)}
    running = Cluster(f"test-{secrets.token_hex(4)}", kubeconfig, env)
    budget = () if "--loop-budget" in options else ("--loop-budget", f"{LOOP_BUDGET * 1000:.0f}ms")
    # The same tests on another store: TRANSOM_TEST_STORE=etcd://127.0.0.1:2379
    store = os.environ.get("TRANSOM_TEST_STORE", "")
    chosen = ("--store", f"{store}/{running.name}") if store else ()
    done = running.transom("up", "--name", running.name, *options, *budget, *chosen, check=False)
    assert done.returncode == 0, done.stderr
    try:
        yield running
    finally:
        blocked = long_callbacks(running)
        running.transom("delete", "--name", running.name)
    assert not blocked, blocked


def long_callbacks(cluster: Cluster) -> str:
    """What the cluster's loop watchdog reported so far, from its log."""
    path = Path(cluster.env["XDG_DATA_HOME"]) / "transom" / cluster.name / "transom.log"
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    reports: list[list[str]] = []
    inside = False
    for line in lines:
        if MARK in line:
            reports.append([line])
            inside = True
        elif inside and line.startswith("  "):
            reports[-1].append(line)
        else:
            inside = False
    # The first use of a module imports it, once; see exact_watch.
    return "\n".join(
        line for report in reports if " in <module>" not in "".join(report) for line in report
    )


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), "--no-nodes") as running:
        yield running


@pytest.fixture
def fresh_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for one test: young, and with nothing of other tests in it."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), "--no-nodes") as running:
        yield running


def kubectl_binaries() -> list[str]:
    """The kubectl on the PATH and those `make test` has put under .tools."""
    found = [
        shutil.which("kubectl"),
        *(str(p) for p in sorted(ROOT.glob(".tools/*/usr/bin/kubectl"))),
    ]
    return list(dict.fromkeys(path for path in found if path))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kubectl" in metafunc.fixturenames:
        binaries = kubectl_binaries()
        skip = pytest.mark.skip(reason="no kubectl on this machine")
        params = binaries or [pytest.param("", marks=skip)]
        ids = [
            Path(b).relative_to(ROOT / ".tools").parts[0] if ".tools" in b else "kubectl"
            for b in binaries
        ]
        metafunc.parametrize("kubectl", params, indirect=True, ids=ids or None, scope="session")


@pytest.fixture(scope="session")
def kubectl(request: pytest.FixtureRequest, cluster: Cluster) -> Kubectl:
    return Kubectl(request.param, cluster)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    require_etcd()
    member = EtcdProcess(tmp_path_factory.mktemp("etcd")).start()
    yield member
    member.kill()
