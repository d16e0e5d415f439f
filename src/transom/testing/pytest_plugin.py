"""The pytest plugin (entry point `pytest11`): fixtures `transom_cluster` and `transom_namespace`.

The cluster starts with the first test that uses it and serves all tests of the process; with
pytest-xdist each worker has its own. Nothing of Transom is imported until then.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from transom.kit.lazy import lazy_import

if TYPE_CHECKING:
    from transom.testing import cluster as test_cluster
    from transom.testing.cluster import Cluster
else:
    test_cluster = lazy_import("transom.testing.cluster")

# Option of pytest.ini -> type and help. Command line options have the same names with dashes.
_OPTIONS = {
    "transom_release": "the Kubernetes release of the cluster, for example 1.36",
    "transom_linux": "the number of Linux worker nodes",
    "transom_windows": "the number of Windows worker nodes",
    "transom_build": "the build of the Windows nodes, for example 20348",
    "transom_config": "a cluster file, as for `transom up --config`",
    "transom_feature_gates": "feature gates: Name=true,Other=false",
    "transom_virtual_time": "true: tests can advance the time of the cluster",
    "transom_in_process": "true: the cluster runs in a thread of pytest, not in a process of its own",
}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_SWITCHES = ("transom_virtual_time", "transom_in_process")
_NUMBERS = ("transom_linux", "transom_windows", "transom_build")
_NAMESPACE = pytest.StashKey[tuple[Any, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    _import_as_usual()
    group = parser.getgroup("transom", "Kubernetes cluster for tests")
    for name, text in _OPTIONS.items():
        group.addoption("--" + name.replace("_", "-"), dest=name, default=None, help=text)
        parser.addini(name, text, default="")


def _import_as_usual() -> None:
    """pytest rewrites the assertions of all modules of a package that has a plugin. That would
    compile the thousand modules of a cluster again in the test's process.
    """
    for finder in sys.meta_path:
        if isinstance(finder, AssertionRewritingHook):
            finder._must_rewrite.discard("transom")


def _option(config: pytest.Config, name: str) -> str:
    value = config.getoption(name) or config.getini(name)
    return str(value or "")


def cluster_options(config: pytest.Config) -> dict[str, Any]:
    """The options of the cluster, from the command line and pytest.ini."""
    chosen: dict[str, Any] = {}
    for name in _OPTIONS:
        value = _option(config, name)
        if not value:
            continue
        key = name.removeprefix("transom_")
        if name in _NUMBERS:
            if not value.isdigit():
                raise pytest.UsageError(f"{name}: {value!r} is not a number")
            chosen[key] = int(value)
        elif name in _SWITCHES:
            if value.lower() not in _BOOLEANS:
                raise pytest.UsageError(f"{name}: {value!r} is neither true nor false")
            chosen[key] = _BOOLEANS[value.lower()]
        elif name == "transom_feature_gates":
            chosen[key] = tuple(value.replace(",", " ").split())
        else:
            chosen[key] = value
    return chosen


@pytest.fixture(scope="session")
def transom_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A Kubernetes cluster with Linux and Windows nodes, for all tests of this process."""
    with test_cluster.Cluster(**cluster_options(pytestconfig)) as cluster:
        yield cluster


@pytest.fixture
def transom_namespace(transom_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new namespace, deleted after the test. If the test fails, the report shows the
    namespace's pods, events and logs.
    """
    name = transom_cluster.create_namespace()
    request.node.stash[_NAMESPACE] = (transom_cluster, name)
    yield name
    transom_cluster.delete_namespace(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Also for a fixture that fails after the namespace was created."""
    report = yield
    used = item.stash.get(_NAMESPACE, None)
    if report.when != "teardown" and report.failed and used is not None:
        cluster, name = used
        report.sections.append(("Transom", cluster.describe_namespace(name)))
    return report
