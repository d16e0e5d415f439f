"""Rules of pods that depend on the release; recorded answers of 1.32 and 1.36 cover more."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.texts import in_release
from transom.machinery.validation import validation_rules

Object = dict[str, Any]


def make_pod(**spec: Any) -> Object:
    container = {
        "name": "c",
        "image": "i",
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File",
    }
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "containers": [container],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30,
            **spec,
        },
    }


def with_container(**fields: Any) -> Object:
    pod = make_pod()
    pod["spec"]["containers"][0].update(fields)
    return pod


def create_errors(pod: Object, minor: int, **gates: bool) -> list[str]:
    release = Release(1, minor)
    rules = validation_rules("/Pod", "v1", FeatureSet(release, gates))
    return [str(error) for error in in_release(release, rules.create(pod))]


def resize_errors(new: Object, old: Object, minor: int) -> list[str]:
    release = Release(1, minor)
    check = validation_rules("/Pod", "v1", FeatureSet(release)).subresources["resize"]
    return [str(error) for error in in_release(release, check(new, old))]


@pytest.mark.parametrize(
    ("minor", "text"),
    [
        (21, "must be less than or equal to cpu limit"),
        (27, "must be less than or equal to cpu limit of 1"),
    ],
)
def test_requests_above_limits(minor: int, text: str) -> None:
    pod = with_container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})
    assert create_errors(pod, minor) == [
        f'spec.containers[0].resources.requests: Invalid value: "2": {text}'
    ]


def test_names_of_variables_are_relaxed_by_a_gate() -> None:
    pod = with_container(env=[{"name": "1 a"}])
    assert create_errors(pod, 32) == []
    assert create_errors(pod, 31, RelaxedEnvironmentVariableValidation=True) == []
    assert len(create_errors(pod, 31)) == 1


@pytest.mark.parametrize(("minor", "allowed"), [(34, False), (35, True)])
def test_restart_policies_of_containers(minor: int, allowed: bool) -> None:
    pod = with_container(restartPolicy="Always")
    assert (create_errors(pod, minor) == []) is allowed


def test_resources_of_a_pod_cover_those_of_its_containers() -> None:
    pod = with_container(resources={"requests": {"cpu": "2"}})
    pod["spec"]["resources"] = {"requests": {"cpu": "1"}}
    assert create_errors(pod, 34) == [
        'spec.resources.requests[cpu]: Invalid value: "1": '
        "must be greater than or equal to aggregate container requests of 2"
    ]
    assert create_errors(pod, 33) == []  # the gate is off, and the field is dropped


def test_sysctls_of_namespaces_that_are_the_hosts() -> None:
    pod = make_pod(hostNetwork=True, securityContext={"sysctls": [{"name": "net/a", "value": "1"}]})
    assert create_errors(pod, 28) == []
    assert create_errors(pod, 29) == [
        'spec.securityContext.sysctls[0].name: Invalid value: "net/a": '
        "may not be specified when 'hostNetwork' is true"
    ]


@pytest.mark.parametrize(
    ("minor", "start"),
    [(23, "  core.PodSpec{"), (33, "  core.PodSpec{"), (34, "@@ -")],
)
def test_differences_have_the_layout_of_the_release(minor: int, start: str) -> None:
    old = make_pod()
    new = make_pod(hostname="h")
    rules = validation_rules("/Pod", "v1", FeatureSet(Release(1, minor)))
    (error,) = rules.update(new, old)
    assert error.detail.partition("\n")[2].startswith(start)
    removed, added = ("- ", "+ ") if minor >= 24 else ("+ ", "- ")
    lines = [line for line in error.detail.splitlines() if "ostname" in line and '"h"' in line]
    assert [line.startswith(added) for line in lines] == [True], (removed, error.detail)


def test_a_resize_changes_cpu_and_memory_only() -> None:
    limits = {"cpu": "1", "memory": "64Mi"}
    old = with_container(resources={"limits": limits, "requests": limits})
    more = {"cpu": "2", "memory": "128Mi"}
    new = with_container(resources={"limits": more, "requests": more})
    assert resize_errors(new, old, 36) == []
    new["spec"]["containers"][0]["image"] = "other"
    assert resize_errors(new, old, 36) == [
        "spec: Forbidden: only cpu and memory resources are mutable"
    ]
    fewer = with_container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})
    assert "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed" in (
        resize_errors(fewer, old, 36)
    )


def test_memory_limits_shrink_since_1_34() -> None:
    big, small = {"cpu": "1", "memory": "2Gi"}, {"cpu": "1", "memory": "1Gi"}
    old = with_container(resources={"limits": big, "requests": big})
    new = with_container(resources={"limits": small, "requests": small})
    assert resize_errors(new, old, 34) == []
    assert resize_errors(new, old, 33) == [
        "spec.containers[0].resources.limits[memory]: Forbidden: "
        "memory limits cannot be decreased unless resizePolicy is RestartContainer"
    ]
