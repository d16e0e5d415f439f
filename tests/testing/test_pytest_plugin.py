"""The pytest plugin, in a separate test run."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.e2e

TESTS = """
import pytest

POD = '''
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, image: nginx}]}
'''

def test_passes(transom_cluster, transom_namespace):
    assert transom_cluster.client().get("/version")["minor"] == "36"
    transom_cluster.apply(POD, transom_namespace)

@pytest.fixture
def broken(transom_cluster, transom_namespace):
    transom_cluster.apply(POD.replace("nginx", "nginx:none"), transom_namespace)
    assert False

def test_has_a_broken_fixture(broken):
    pass

def test_fails(transom_cluster, transom_namespace):
    assert transom_cluster.list("pods", transom_namespace) == []
    transom_cluster.apply(POD, transom_namespace)
    transom_cluster.wait("pod/web", "condition=Ready", transom_namespace)
    assert False
"""


def test_fixtures_options_and_the_report_of_a_failure(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntransom_release = 1.36\ntransom_linux = 1\ntransom_windows = 0\n")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    error = ["*ERROR at setup of test_has_a_broken_fixture*", "*- Transom -*", "Namespace test-*"]
    result.stdout.fnmatch_lines(error)
    result.stdout.fnmatch_lines(["*- Transom -*", "Namespace test-*", "pod/web: Running on *"])


FAILURES = """
def test_waits(transom_cluster, transom_namespace):
    transom_cluster.wait("pod/none", "condition=Ready", transom_namespace, timeout=0.2)

def test_reads(transom_cluster):
    transom_cluster.get("pod/none")

def test_misspells(transom_cluster):
    transom_cluster.list("podz")
"""


def test_the_report_of_a_failed_call_shows_the_line_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntransom_linux = 0\ntransom_windows = 0\n")
    pytester.makepyfile(FAILURES)
    result = pytester.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines([">       transom_cluster.wait(*", "E *pod/none did not reach*"])
    result.stdout.fnmatch_lines([">       transom_cluster.get(*", 'E *pods "none" not found*'])
    result.stdout.fnmatch_lines([">       transom_cluster.list(*", 'E *resource type "podz"*'])
    for module in ("cluster.py:*", "_base.py:*"):
        result.stdout.no_fnmatch_line(f"*/{module}")


def test_a_wrong_option_is_an_error_of_usage(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("--transom-windows", "many")
    result.stdout.fnmatch_lines(["*transom_windows: 'many' is not a number*"])


PARALLEL = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_own_objects(transom_cluster, transom_namespace, number):
    transom_cluster.advance(minutes=1)
    transom_cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, transom_namespace
    )
    assert len(transom_cluster.list("configmaps", transom_namespace)) <= 2
"""


def test_workers_of_xdist_have_clusters_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntransom_linux = 0\ntransom_windows = 0\n")
    pytester.makepyfile(PARALLEL)
    result = pytester.runpytest_subprocess(
        "-n2", "--transom-virtual-time=true", "--transom-in-process=yes"
    )
    result.assert_outcomes(passed=4)


def test_a_wrong_switch_is_an_error_of_usage(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "no:xdist", "--transom-in-process", "maybe")
    result.stdout.fnmatch_lines(["*transom_in_process: 'maybe' is neither true nor false*"])
