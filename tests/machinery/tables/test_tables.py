"""Cells and layout of tables; compared with recorded responses of a real server, if the recordings
are available.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from transom.machinery.kinds import BY_KEY, KINDS
from transom.machinery.releases import Release
from transom.machinery.tables import (
    check_include_object,
    custom_columns,
    make_table,
    partial,
    row_cells,
    table_columns,
)
from transom.machinery.tables.custom import go_text
from transom.machinery.tables.jsonpath import PathError, compile_path
from transom.machinery.tables.text import human_duration, selector_string

NOW = 1_600_000_000.0  # 2020-09-13T12:26:40Z
CREATED = "2020-09-13T12:25:00Z"
RECORDED = Path(__file__).parents[4] / "shared/golden/expected/1.20/api-tables.json"


def obj(name: str = "x", **more: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "creationTimestamp": CREATED,
        "resourceVersion": "7",
        **more.pop("metadata", {}),
    }
    return {"metadata": metadata, **more}


def cells(key: str, **more: Any) -> list[Any]:
    return row_cells(BY_KEY[key], obj(**more), NOW)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (179 * 60, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 61, "5h1m"),
        (8 * 3600 + 3599, "8h"),
        (48 * 3600, "2d"),
        (53 * 3600, "2d5h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (1115 * 86400, "3y20d"),
        (8 * 365 * 86400, "8y"),
        (8 * 365 * 86400 + 86400, "8y"),
    ],
)
def test_human_duration(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def running(name: str = "c", restarts: int = 0, ready: bool = True) -> dict[str, Any]:
    return {"name": name, "ready": ready, "restartCount": restarts, "state": {"running": {}}}


def ended(**state: Any) -> dict[str, Any]:
    return {"name": "c", "ready": False, "restartCount": 1, "state": {"terminated": state}}


def waiting(reason: str) -> dict[str, Any]:
    return {
        "name": "c",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": reason}},
    }


TWO = {"containers": [{}, {}], "initContainers": [{}, {}]}


@pytest.mark.parametrize(
    ("status", "metadata", "ready", "text", "restarts"),
    [
        ({"phase": "Pending"}, {}, "0/2", "Pending", 0),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "0/2", "Evicted", 0),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [ended(exitCode=0), waiting("PodInitializing")],
            },
            {},
            "0/2",
            "Init:1/2",
            4,
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [waiting("ImagePullBackOff")]},
            {},
            "0/2",
            "Init:ImagePullBackOff",
            3,
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [ended(exitCode=1)]},
            {},
            "0/2",
            "Init:ExitCode:1",
            1,
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [ended(exitCode=1, signal=9)]},
            {},
            "0/2",
            "Init:Signal:9",
            1,
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [ended(exitCode=1, reason="Error")]},
            {},
            "0/2",
            "Init:Error",
            1,
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [running(restarts=2), waiting("CrashLoopBackOff")],
            },
            {},
            "1/2",
            "CrashLoopBackOff",
            5,
        ),
        (
            {"phase": "Running", "containerStatuses": [ended(exitCode=137, signal=9), running()]},
            {},
            "1/2",
            "Signal:9",
            1,
        ),
        (
            {"phase": "Running", "containerStatuses": [ended(reason="Completed"), running()]},
            {},
            "1/2",
            "NotReady",
            1,
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [ended(reason="Completed"), running()],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
            {},
            "1/2",
            "Running",
            1,
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [ended(reason="Completed")]},
            {},
            "0/2",
            "Completed",
            1,
        ),
        (
            {"phase": "Running", "containerStatuses": [running()]},
            {"deletionTimestamp": CREATED},
            "1/2",
            "Terminating",
            0,
        ),
        (
            {"phase": "Running", "reason": "NodeLost"},
            {"deletionTimestamp": CREATED},
            "0/2",
            "Unknown",
            0,
        ),
    ],
)
def test_pod_status(
    status: dict[str, Any], metadata: dict[str, Any], ready: str, text: str, restarts: int
) -> None:
    row = cells("/Pod", spec=TWO, status=status, metadata=metadata)
    assert row[1:5] == [ready, text, restarts, "100s"]


def test_pod_wide_cells_and_row_condition() -> None:
    pod = obj(
        spec={"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}], "nodeName": "n"},
        status={
            "phase": "Failed",
            "podIPs": [{"ip": "10.0.0.1"}],
            "nominatedNodeName": "m",
            "conditions": [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}],
        },
    )
    document = make_table(BY_KEY["/Pod"], [pod], now=NOW, include_object="None")
    assert document["rows"][0]["cells"][5:] == ["10.0.0.1", "n", "m", "1/2"]
    assert document["rows"][0]["conditions"] == [
        {"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}
    ]
    assert document["metadata"] == {"resourceVersion": "7"}


METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}},
    {"type": "External", "external": {"target": {"averageValue": "3"}}},
    {"type": "Pods", "pods": {"target": {"averageValue": "5"}}},
]


@pytest.mark.parametrize(
    ("key", "more", "expected"),
    [
        (
            "/Service",
            {
                "spec": {
                    "type": "NodePort",
                    "clusterIPs": ["10.1.1.1"],
                    "selector": {"b": "2", "a": "1"},
                    "ports": [
                        {"port": 80, "nodePort": 30080, "protocol": "TCP"},
                        {"port": 53, "protocol": "UDP"},
                    ],
                }
            },
            ["x", "NodePort", "10.1.1.1", "<none>", "80:30080/TCP,53/UDP", "100s", "a=1,b=2"],
        ),
        (
            "/Service",
            {"spec": {"type": "LoadBalancer"}},
            ["x", "LoadBalancer", "<none>", "<pending>", "<none>", "100s", "<none>"],
        ),
        (
            "/Service",
            {
                "spec": {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]},
                "status": {
                    "loadBalancer": {"ingress": [{"ip": "2.2.2.2"}, {"hostname": "1.example"}]}
                },
            },
            [
                "x",
                "LoadBalancer",
                "<none>",
                "1.example,2.2.2.2,9.9.9.9",
                "<none>",
                "100s",
                "<none>",
            ],
        ),
        (
            "batch/Job",
            {
                "spec": {"parallelism": 3},
                "status": {
                    "startTime": CREATED,
                    "completionTime": "2020-09-13T12:25:09Z",
                    "succeeded": 1,
                },
            },
            ["x", "1/1 of 3", "9s", "100s", "", "", "<none>"],
        ),
        (
            "batch/CronJob",
            {
                "spec": {"schedule": "@daily", "suspend": False},
                "status": {"active": [{}], "lastScheduleTime": CREATED},
            },
            ["x", "@daily", "False", 1, "100s", "100s", "", "", "<none>"],
        ),
        (
            "autoscaling/HorizontalPodAutoscaler",
            {
                "spec": {
                    "scaleTargetRef": {"kind": "D", "name": "d"},
                    "maxReplicas": 4,
                    "metrics": METRICS,
                },
                "status": {
                    "currentMetrics": [
                        {"type": "Resource", "resource": {"current": {"averageUtilization": 7}}}
                    ]
                },
            },
            ["x", "D/d", "7%/50%, <unknown>/3 (avg) + 1 more...", "<unset>", 4, 0, "100s"],
        ),
        (
            "policy/PodSecurityPolicy",
            {
                "spec": {
                    "privileged": True,
                    "allowedCapabilities": ["A", "B"],
                    "volumes": ["*"],
                    "seLinux": {"rule": "RunAsAny"},
                    "runAsUser": {"rule": "MustRunAsNonRoot"},
                    "fsGroup": {"rule": "MustRunAs"},
                    "supplementalGroups": {"rule": "MayRunAs"},
                }
            },
            [
                "x",
                "true",
                "A,B",
                "RunAsAny",
                "MustRunAsNonRoot",
                "MustRunAs",
                "MayRunAs",
                False,
                "*",
            ],
        ),
        (
            "policy/PodDisruptionBudget",
            {"spec": {"maxUnavailable": 0}, "status": {"disruptionsAllowed": 2}},
            ["x", "N/A", "0", 2, "100s"],
        ),
        (
            "/Node",
            {
                "metadata": {
                    "labels": {"node-role.kubernetes.io/b": "", "kubernetes.io/role": "a"}
                },
                "spec": {"unschedulable": True},
                "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            },
            [
                "x",
                "NotReady,SchedulingDisabled",
                "a,b",
                "100s",
                "",
                "<none>",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>",
            ],
        ),
        (
            "/Endpoints",
            {"subsets": [{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 1}, {"port": 2}]}]},
            ["x", "[fd00::1]:1,[fd00::1]:2", "100s"],
        ),
        (
            "discovery.k8s.io/EndpointSlice",
            {"addressType": "IPv4", "ports": [{"name": "a"}, {}], "endpoints": []},
            ["x", "IPv4", "a,*", "<unset>", "100s"],
        ),
        (
            "networking.k8s.io/Ingress",
            {"spec": {"rules": [{"host": h} for h in "abcd"] + [{}]}},
            ["x", "<none>", "a,b,c + 2 more...", "", "80", "100s"],
        ),
        (
            "networking.k8s.io/IngressClass",
            {
                "spec": {
                    "controller": "c",
                    "parameters": {"apiGroup": "g", "kind": "K", "name": "n"},
                }
            },
            ["x", "c", "K.g/n", "100s"],
        ),
        (
            "/PersistentVolumeClaim",
            {
                "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
                "spec": {"volumeName": "v", "storageClassName": "new"},
                "status": {
                    "phase": "Bound",
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                    "capacity": {"storage": "2Gi"},
                },
            },
            ["x", "Bound", "v", "2Gi", "RWO,RWX", "old", "100s", "<unset>"],
        ),
        (
            "/ResourceQuota",
            {
                "status": {
                    "hard": {"pods": "3", "limits.cpu": "2", "cpu": "1"},
                    "used": {"cpu": "500m"},
                }
            },
            ["x", "100s", "cpu: 500m/1, pods: 0/3", "limits.cpu: 0/2"],
        ),
        (
            "/Event",
            {
                "eventTime": "2020-09-13T12:26:30.500000Z",
                "involvedObject": {"kind": "Pod", "name": "p"},
                "reportingComponent": "c",
                "reportingInstance": "i",
                "series": {"count": 4, "lastObservedTime": "2020-09-13T12:26:38.000000Z"},
                "message": " m\n",
            },
            ["2s", "", "", "pod/p", "", "c, i", "m", "9s", 5, "x"],
        ),
        (
            "certificates.k8s.io/CertificateSigningRequest",
            {
                "spec": {"username": "u"},
                "status": {
                    "certificate": "eA==",
                    "conditions": [{"type": "Approved"}, {"type": "Failed"}],
                },
            },
            ["x", "100s", "<none>", "u", "Approved,Failed,Issued"],
        ),
        (
            "apps/ControllerRevision",
            {
                "revision": 2,
                "metadata": {
                    "ownerReferences": [
                        {
                            "apiVersion": "apps/v1",
                            "kind": "DaemonSet",
                            "name": "d",
                            "controller": True,
                        }
                    ]
                },
            },
            ["x", "daemonset.apps/d", 2, "100s"],
        ),
        (
            "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration",
            {
                "spec": {
                    "type": "Limited",
                    "limited": {
                        "nominalConcurrencyShares": 30,
                        "limitResponse": {
                            "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}
                        },
                    },
                }
            },
            ["x", "Limited", 30, 64, 6, 50, "100s"],
        ),
        (
            "apiregistration.k8s.io/APIService",
            {
                "spec": {"service": {"namespace": "n", "name": "s"}},
                "status": {
                    "conditions": [
                        {"type": "Available", "status": "False", "reason": "MissingEndpoints"}
                    ]
                },
            },
            ["x", "n/s", "False (MissingEndpoints)", "100s"],
        ),
        (
            "storage.k8s.io/StorageClass",
            {
                "provisioner": "p",
                "metadata": {
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}
                },
            },
            ["x (default)", "p", "Delete", "Immediate", False, "100s"],
        ),
        ("rbac.authorization.k8s.io/Role", {}, ["x", CREATED]),
    ],
)
def test_cells(key: str, more: dict[str, Any], expected: list[Any]) -> None:
    assert cells(key, **more) == expected


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.key)
def test_every_row_has_a_cell_for_each_column(kind: Any) -> None:
    assert len(row_cells(kind, obj(), NOW)) == len(table_columns(kind))


def test_age_of_an_object_without_creation_time_is_unknown() -> None:
    assert row_cells(BY_KEY["/Namespace"], {"metadata": {"name": "n"}}, NOW)[2] == "<unknown>"


def test_selector_is_ordered_by_key() -> None:
    rules = [
        {"key": "b", "operator": "NotIn", "values": ["2", "1"]},
        {"key": "a", "operator": "DoesNotExist"},
        {"key": "d", "operator": "Exists"},
    ]
    assert (
        selector_string({"matchLabels": {"c": "x"}, "matchExpressions": rules})
        == "!a,b notin (1,2),c=x,d"
    )


def test_rows_of_an_empty_list() -> None:
    assert (
        make_table(BY_KEY["/Secret"], [], now=NOW, list_metadata={"resourceVersion": "1"})["rows"]
        == []
    )
    assert (
        make_table(BY_KEY["/LimitRange"], [], now=NOW, list_metadata={"resourceVersion": "1"})[
            "rows"
        ]
        is None
    )


def test_row_object_follows_the_query() -> None:
    kind, one = BY_KEY["/ConfigMap"], obj(data={"a": "b"})
    partial_row = make_table(kind, [one], now=NOW, table_version="v1beta1")["rows"][0]["object"]
    assert partial_row == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1beta1",
        "metadata": one["metadata"],
    }
    whole = make_table(
        kind, [one], now=NOW, include_object="Object", raw_encoder=lambda o: {"raw": o["data"]}
    )
    assert whole["rows"][0]["object"] == {"raw": {"a": "b"}}
    assert check_include_object("Object") is None
    error = check_include_object("Everything")
    assert error is not None and error.code == 400


def test_partial_list_drops_the_remaining_count() -> None:
    document = partial.object_metadata_list(
        [obj()], {"resourceVersion": "1", "remainingItemCount": 3}
    )
    assert document["metadata"] == {"resourceVersion": "1"}
    assert partial.object_metadata_list([], {})["items"] is None
    assert "(*rbac.RoleList)" in partial.is_a_list(BY_KEY["rbac.authorization.k8s.io/Role"]).message


WIDGET = {
    "metadata": {
        "name": "w",
        "creationTimestamp": CREATED,
        "annotations": {"a.example/b": "dotted"},
    },
    "spec": {"list": [1, 2, 3], "f": 2.5, "big": 1e21, "n": None, "m": {"k": "v"}},
    "status": {"conditions": [{"type": "A", "status": "no"}, {"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["w"]),
        (".spec.nothing.here", []),
        (r".metadata.annotations.a\.example/b", ["dotted"]),
        (".metadata.annotations['a\\.example/b']", ["dotted"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Nope')].status", []),
        (".status.conditions[?(@.missing)].status", []),
        (".status.conditions[*].type", ["A", "Ready"]),
        (".spec.list[-1]", [3]),
        (".spec.list[-2]", [2]),
        (".spec.list[0:2]", [1, 2]),
        (".spec.list[::2]", [1, 3]),
        (".spec.list[0,2]", [1, 3]),
        (".spec.m.*", ["v"]),
        ("..k", ["v"]),
    ],
)
def test_jsonpath(path: str, found: list[Any]) -> None:
    assert compile_path(path)(WIDGET) == found


@pytest.mark.parametrize("path", [".a[?", ".a[", ".a[x]", '"open', ".a b"])
def test_jsonpath_that_cannot_be_read(path: str) -> None:
    with pytest.raises(PathError):
        compile_path(path)


def test_custom_columns() -> None:
    wanted = [
        {"name": "First", "type": "string", "jsonPath": ".spec.list[*]"},
        {"name": "Map", "type": "string", "jsonPath": ".spec.m", "priority": 1},
        {"name": "Int", "type": "integer", "jsonPath": ".spec.f", "description": "d"},
        {"name": "Out", "type": "string", "jsonPath": ".spec.list[9]"},
        {"name": "Wrong", "type": "boolean", "jsonPath": ".metadata.name"},
        {"name": "When", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Bad", "type": "date", "jsonPath": ".metadata.name"},
    ]
    made = custom_columns(wanted)
    assert made.cells(WIDGET, NOW) == ["w", "1", '{"k":"v"}', 2, None, None, "100s", "<invalid>"]
    assert made.definitions[2] == {
        "name": "Map",
        "type": "string",
        "format": "",
        "priority": 1,
        "description": "Custom resource definition column (in JSONPath format): .spec.m",
    }
    default = custom_columns([])
    assert [c["name"] for c in default.definitions] == ["Name", "Age"]
    assert default.cells(WIDGET, NOW) == ["w", "100s"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.5, "2.5"),
        (3.0, "3"),
        (1e21, "1e+21"),
        (1.5e-7, "1.5e-07"),
        (True, "true"),
        (None, "<no value>"),
    ],
)
def test_go_text(value: Any, text: str) -> None:
    assert go_text(value) == text


@pytest.mark.skipif(not RECORDED.exists(), reason="no recorded answers here")
def test_columns_equal_the_recorded_ones() -> None:
    ours = [table_columns(kind) for kind in KINDS]
    for steps in json.loads(RECORDED.read_bytes()).values():
        for step, answer in steps.items():
            body = answer.get("body")
            if isinstance(body, dict) and "columnDefinitions" in body and step != "psps":
                assert body["columnDefinitions"] in ours, step


@pytest.mark.parametrize("path", [".a" + "..a" * 6, "['a','a']" * 40, ".a[?(@..a..a..a)]"])
def test_a_path_visits_a_bounded_number_of_values(path: str) -> None:
    deep: Any = 1
    for _ in range(150):
        deep = {"a": deep}
    if "?" in path:
        deep = {"a": [deep] * 100}
    with pytest.raises(PathError, match="too many values"):
        compile_path(path)(deep)


def test_columns_of_other_servers_stay_in_later_releases() -> None:
    columns = table_columns(BY_KEY["apiregistration.k8s.io/APIService"], Release(1, 36))
    assert [column["name"] for column in columns] == ["Name", "Service", "Available", "Age"]
    assert "overview/working-with-objects" in columns[0]["description"]
