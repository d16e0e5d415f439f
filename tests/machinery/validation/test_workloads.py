"""Rules of workloads and jobs that no recorded answer covers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from transom.machinery.field import FieldError
from transom.machinery.validation import batch, validation_rules, workloads

Object = dict[str, Any]
RULES = {key: validation_rules(key) for key in (*workloads.VALIDATORS, *batch.VALIDATORS)}
SELECTOR = {"matchLabels": {"app": "x"}}


def template(**spec: Any) -> Object:
    one = {
        "name": "c",
        "image": "i",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    return {
        "metadata": {"labels": {"app": "x", "controller-uid": "u", "job-name": "o"}},
        "spec": {
            "containers": [one],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            **spec,
        },
    }


GOOD: dict[str, Object] = {
    "/ReplicationController": {"replicas": 1, "selector": {"app": "x"}, "template": template()},
    "apps/ReplicaSet": {"replicas": 1, "selector": SELECTOR, "template": template()},
    "apps/Deployment": {
        "replicas": 1,
        "selector": SELECTOR,
        "template": template(),
        "progressDeadlineSeconds": 600,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
    },
    "apps/DaemonSet": {
        "selector": SELECTOR,
        "template": template(),
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    },
    "apps/StatefulSet": {
        "replicas": 1,
        "selector": SELECTOR,
        "template": template(),
        "serviceName": "s",
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {}},
    },
    "batch/Job": {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "selector": {"matchLabels": {"controller-uid": "u"}},
        "template": template(restartPolicy="Never"),
    },
    "batch/CronJob": {
        "schedule": "@daily",
        "concurrencyPolicy": "Allow",
        "jobTemplate": {"spec": {"template": template(restartPolicy="OnFailure")}},
    },
}


def make(key: str, **spec: Any) -> Object:
    return {
        "metadata": {"name": "o", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {**copy.deepcopy(GOOD[key]), **spec},
        "status": {},
    }


def texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]


@pytest.mark.parametrize("key", GOOD)
def test_good_ones_pass(key: str) -> None:
    rules = RULES[key]
    assert rules.create(make(key)) == []
    assert rules.update(make(key), make(key)) == []
    assert rules.status_update is not None and rules.status_update(make(key), make(key)) == []


@pytest.mark.parametrize(
    ("key", "spec", "errors"),
    [
        ("/ReplicationController", {"selector": {}}, ["selector: Required value"]),
        (
            "/ReplicationController",
            {"template": template(activeDeadlineSeconds=1)},
            [
                "template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in "
                "ReplicationController is not "
                "Supported"
            ],
        ),
        (
            "apps/Deployment",
            {"template": template(activeDeadlineSeconds=1)},
            [
                (
                    "template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in "
                    "ReplicaSet is not Supported"
                )
            ],
        ),
        (
            "apps/ReplicaSet",
            {
                "replicas": 2,
                "template": template(volumes=[{"name": "v", "gcePersistentDisk": {"pdName": "p"}}]),
            },
            [
                "template.spec.volumes[0].gcePersistentDisk.readOnly: Invalid value: false: "
                "must be true for replicated "
                "pods > 1; "
                "GCE PD can only be mounted on multiple machines if it is read-only"
            ],
        ),
        (
            "apps/ReplicaSet",
            {"selector": {}},
            [
                "selector: Invalid value: v1.LabelSelector{MatchLabels:map[string]string(nil), "
                "MatchExpressions:[]v1.LabelSelectorRequirement(nil)}: empty selector is "
                "invalid for deployment"
            ],
        ),
        (
            "apps/Deployment",
            {
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "101%", "maxSurge": -1},
                }
            },
            [
                (
                    "strategy.rollingUpdate.maxSurge: Invalid value: -1: must be greater than or "
                    "equal to 0"
                ),
                "strategy.rollingUpdate.maxUnavailable: Invalid value: "
                "intstr.IntOrString{Type:1, IntVal:0, "
                'StrVal:"101%"}: must '
                "not be greater than 100%",
            ],
        ),
        (
            "apps/DaemonSet",
            {
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
                }
            },
            [],
        ),
        (
            "apps/DaemonSet",
            {"updateStrategy": {"type": "x"}},
            [
                'updateStrategy: Unsupported value: apps.DaemonSetUpdateStrategy{Type:"x", '
                "RollingUpdate:(*apps.RollingUpdateDaemonSet)(nil)}: supported values: "
                '"RollingUpdate", "OnDelete"'
            ],
        ),
        (
            "apps/StatefulSet",
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 2}}},
            [
                "updateStrategy.rollingUpdate: Invalid value: "
                "apps.RollingUpdateStatefulSetStrategy{Partition:2}: only "
                "allowed for "
                "updateStrategy 'RollingUpdate'"
            ],
        ),
        (
            "apps/StatefulSet",
            {"template": template(containers=[])},
            [],
        ),  # the pod spec itself is not looked at
        (
            "batch/Job",
            {"template": template(restartPolicy="x")},
            [
                (
                    'template.spec.restartPolicy: Unsupported value: "x": supported values: '
                    '"Always", "OnFailure", "Never"'
                ),
                (
                    'template.spec.restartPolicy: Unsupported value: "x": supported values: '
                    '"OnFailure", "Never"'
                ),
            ],
        ),
        (
            "batch/Job",
            {"completionMode": "Indexed", "completions": None},
            ["completions: Required value: when completion mode is Indexed"],
        ),
        (
            "batch/Job",
            {
                "podFailurePolicy": {
                    "rules": [
                        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [2, 0, 2]}}
                    ]
                }
            },
            [
                (
                    "podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not "
                    "be 0 for the In operator"
                ),
                "podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 2",
                (
                    "podFailurePolicy.rules[0].onExitCodes.values: Invalid value: []int32{2, 0, "
                    "2}: must be ordered"
                ),
            ],
        ),
        (
            "batch/Job",
            {"podFailurePolicy": {"rules": [{"action": "Count"}]}},
            [
                (
                    "podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and "
                    "OnPodConditions is required"
                )
            ],
        ),
        (
            "batch/Job",
            {
                "completionMode": "Indexed",
                "completions": 4,
                "successPolicy": {
                    "rules": [
                        {"succeededIndexes": "0,2-3", "succeededCount": 4},
                        {"succeededIndexes": "3,1"},
                        {},
                    ]
                },
            },
            [
                "successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than "
                "or equal to 3 (the number of "
                "indexes in "
                "the specified succeededIndexes field)",
                'successPolicy.rules[1].succeededIndexes: Invalid value: "3,1": error '
                "parsing succeededIndexes: "
                "non-increasing "
                "order, previous: 3, current: 1",
                "successPolicy.rules[2]: Required value: at least one of succeededCount or "
                "succeededIndexes must be "
                "specified",
            ],
        ),
        (
            "batch/CronJob",
            {"timeZone": "Mars/Base"},
            ['timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base'],
        ),
        (
            "batch/CronJob",
            {
                "jobTemplate": {
                    "spec": {"template": template(restartPolicy="Never"), "manualSelector": True}
                }
            },
            [
                (
                    "jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "
                    '"nil", "false"'
                )
            ],
        ),
    ],
)
def test_specs(key: str, spec: Object, errors: list[str]) -> None:
    obj = make(key, **spec)
    obj["spec"] = {name: value for name, value in obj["spec"].items() if value is not None}
    assert texts(RULES[key].create(obj)) == [f"spec.{e}" for e in errors]


def test_a_job_owns_its_labels() -> None:
    job = make("batch/Job")
    job["spec"]["template"]["metadata"]["labels"]["job-name"] = "other"
    assert texts(RULES["batch/Job"].create(job)) == [
        "spec.template.metadata.labels[job-name]: Invalid value: "
        'map[string]string{"app":"x", "controller-uid":"u", '
        '"job-name":"other"}: must be \'o\''
    ]


@pytest.mark.parametrize(
    ("key", "spec", "fields"),
    [
        (
            "apps/ReplicaSet",
            {"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
            ["spec.selector"],
        ),
        (
            "apps/DaemonSet",
            {"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
            ["spec.selector"],
        ),
        ("apps/StatefulSet", {"replicas": 3, "minReadySeconds": 1}, []),
        ("apps/StatefulSet", {"volumeClaimTemplates": [{}]}, ["spec"]),
        ("batch/Job", {"parallelism": 5, "suspend": True}, []),
        ("batch/Job", {"template": template(restartPolicy="OnFailure")}, ["spec.template"]),
        ("batch/Job", {"completionMode": "Indexed"}, ["spec.completionMode"]),
    ],
)
def test_updates(key: str, spec: Object, fields: list[str]) -> None:
    errors = RULES[key].update(make(key, **spec), make(key))
    assert [e.field for e in errors] == fields


def test_a_suspended_job_may_still_choose_its_nodes() -> None:
    old = make("batch/Job", suspend=True)
    new = make(
        "batch/Job", suspend=True, template=template(restartPolicy="Never", nodeSelector={"a": "b"})
    )
    assert RULES["batch/Job"].update(new, old) == []
    old["status"] = {"startTime": "2021-01-01T00:00:00Z"}
    assert [e.field for e in RULES["batch/Job"].update(new, old)] == ["spec.template"]


def test_status_counts() -> None:
    update = RULES["apps/Deployment"].status_update
    assert update is not None
    old = {**make("apps/Deployment"), "status": {"collisionCount": 2}}
    new = {
        **make("apps/Deployment"),
        "status": {"replicas": 1, "readyReplicas": 2, "availableReplicas": -1},
    }
    assert texts(update(new, old)) == [
        "status.availableReplicas: Invalid value: -1: must be greater than or equal to 0",
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        "status.collisionCount: Invalid value: 0: cannot be decremented",
    ]


def test_revisions_keep_their_data() -> None:
    create, update, *_ = RULES["apps/ControllerRevision"]
    meta = {"name": "o", "namespace": "ns", "resourceVersion": "1"}
    assert texts(create({"metadata": meta, "revision": -1})) == [
        "data: Required value: data is mandatory",
        "revision: Invalid value: -1: must be greater than or equal to 0",
    ]
    errors = texts(update({"metadata": meta, "data": {"a": 1}}, {"metadata": meta, "data": {}}))
    assert errors[0].endswith("field is immutable")
    assert "Raw:[]uint8{0x7b, 0x22, 0x61, 0x22, 0x3a, 0x31, 0x7d}" in errors[0]
