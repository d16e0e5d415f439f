"""Rules of pods that no recorded answer covers: rare sources, updates, status, later fields."""

from __future__ import annotations

from typing import Any

import pytest
from tests.machinery.validation.pods import CREATE, Object, container, pod, texts


def with_container(**more: Any) -> Object:
    return pod(containers=[container(**more)])


def with_volume(**source: Any) -> Object:
    return pod(volumes=[{"name": "v", **source}])


C = "spec.containers[0]"
V = "spec.volumes[0]"
DNS_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end "
    "with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def test_a_plain_pod_is_valid() -> None:
    assert CREATE(pod()) == []


@pytest.mark.parametrize(
    ("source", "errors"),
    [
        ({}, [": Required value: must specify a volume type"]),
        (
            {"cephfs": {"monitors": ["m"]}, "nfs": {"server": "s", "path": "/"}},
            [".cephFS: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {"hostPath": {"path": "/"}, "downwardAPI": {}},
            [".downwarAPI: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {"gcePersistentDisk": {"partition": 256}},
            [
                ".persistentDisk.pdName: Required value",
                (
                    ".persistentDisk.partition: Invalid value: 256: must be between 1 and 255, "
                    "inclusive"
                ),
            ],
        ),
        (
            {"iscsi": {"targetPortal": "p", "iqn": "x", "lun": 256, "chapAuthSession": True}},
            [
                (
                    '.iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, '
                    "eui, or naa"
                ),
                ".iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
                ".iscsi.secretRef: Required value",
            ],
        ),
        (
            {
                "iscsi": {
                    "targetPortal": "p" * 63,
                    "iqn": "iqn.2001-04.com.example:a",
                    "lun": 0,
                    "initiatorName": "iqn.1",
                }
            },
            [
                '.iscsi.initiatorname: Invalid value: "iqn.1": must be valid format',
                '.name: Invalid value: "v": Total length of <volume '
                "name>:<iscsi.targetPortal> must be under 64 characters "
                "if "
                "iscsi.initiatorName is specified.",
            ],
        ),
        (
            {"fc": {"targetWWNs": ["a"], "wwids": ["b"]}},
            [
                (
                    '.fc.targetWWNs: Invalid value: []string{"a"}: targetWWNs and wwids can not '
                    "be specified simultaneously"
                ),
                ".fc.lun: Required value: lun is required if targetWWNs is specified",
            ],
        ),
        (
            {"flexVolume": {"driver": "d", "options": {"Sub.K8s.io/x": "1"}}},
            [
                '.flexVolume.options[Sub.K8s.io/x]: Invalid value: "Sub.K8s.io/x": '
                "kubernetes.io and k8s.io namespaces are "
                "reserved"
            ],
        ),
        (
            {"quobyte": {"registry": "a:1,b", "volume": "v"}},
            [
                (
                    '.quobyte.registry: Invalid value: "a:1,b": must be a host:port pair or '
                    "multiple pairs separated by commas"
                )
            ],
        ),
        (
            {"azureDisk": {"diskName": "d", "diskURI": "x", "kind": "Managed", "cachingMode": "y"}},
            [
                (
                    '.azureDisk.cachingMode: Unsupported value: "y": supported values: "None", '
                    '"ReadOnly", "ReadWrite"'
                ),
                '.azureDisk.diskURI: Unsupported value: "x": supported values: '
                '"/subscriptions/{sub-id}/resourcegroups/'
                '{group-name}/providers/microsoft.compute/disks/{disk-id}"',
            ],
        ),
        (
            {"csi": {"driver": "d", "nodePublishSecretRef": {}}},
            [".csi.nodePublishSecretRef .name: Required value"],
        ),
        ({"csi": {"driver": "D" * 64}}, [".csi.driver: Too long: must have at most 63 bytes"]),
        (
            {"flocker": {}},
            [".flocker: Required value: one of datasetName and datasetUUID is required"],
        ),
        (
            {"gitRepo": {"repository": "r", "directory": "/a"}},
            ['.gitRepo.directory: Invalid value: "/a": must be a relative path'],
        ),
        (
            {"secret": {"secretName": "s", "items": [{"key": "k", "path": "..x", "mode": 512}]}},
            [
                ".secret.items[0].path: Invalid value: \"..x\": must not start with '..'",
                (
                    ".secret.items[0].mode: Invalid value: 512: must be a number between 0 and "
                    "0777 (octal), both inclusive"
                ),
            ],
        ),
        (
            {"projected": {"sources": [{"secret": {"name": "a"}, "configMap": {"name": "b"}}]}},
            [".projected.sources[0]: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "p",
                            "resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"},
                        }
                    ]
                }
            },
            [
                ".downwardAPI.resourceFieldRef.containerName: Required value",
                '.downwardAPI.resourceFieldRef.divisor: Invalid value: "limits.cpu": only '
                "divisor's values 1m and 1 are "
                "supported with the cpu resource",
            ],
        ),
        ({"ephemeral": {}}, [".ephemeral.volumeClaimTemplate: Required value"]),
        (
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"name": "x"},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}},
                        },
                    }
                }
            },
            [
                (
                    ".ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set for "
                    "an ephemeral volume"
                )
            ],
        ),
    ],
)
def test_volume_sources(source: Object, errors: list[str]) -> None:
    assert texts(CREATE(with_volume(**source))) == [V + e for e in errors]


def test_a_claim_made_for_an_ephemeral_volume_is_not_for_others() -> None:
    claim = {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    }
    volumes = [
        {"name": "a", "ephemeral": {"volumeClaimTemplate": claim}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "o-a"}},
    ]
    assert texts(CREATE(pod(volumes=volumes))) == [
        'spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "o-a": must not '
        "reference a PVC that gets "
        "created "
        "for an ephemeral volume"
    ]


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        (
            {
                "env": [
                    {
                        "name": "A",
                        "valueFrom": {
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels['A b']"}
                        },
                    }
                ]
            },
            [
                '.env[0].valueFrom.fieldRef: Invalid value: "A b": name part must consist of '
                "alphanumeric characters, "
                "'-', '_' "
                "or '.', and must start and end with an alphanumeric character (e.g. "
                "'MyName',  or 'my.name',  or '123-abc', "
                "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ],
        ),
        (
            {
                "env": [
                    {
                        "name": "A",
                        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.host"}},
                    }
                ]
            },
            [],
        ),
        (
            {
                "env": [
                    {
                        "name": "A",
                        "valueFrom": {
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName['x']"}
                        },
                    }
                ]
            },
            [
                ".env[0].valueFrom.fieldRef.fieldPath: Invalid value: "
                "\"spec.nodeName['x']\": error converting fieldPath: "
                "field "
                "label does not support subscript: spec.nodeName['x']"
            ],
        ),
        ({"envFrom": [{"configMapRef": {"name": "a-"}}]}, []),
        (
            {"envFrom": [{"configMapRef": {}, "secretRef": {"name": "s"}}]},
            [
                ".envFrom[0].configMapRef.name: Required value",
                '.envFrom: Invalid value: "": may not have more than one field specified at a time',
            ],
        ),
        (
            {
                "resources": {
                    "limits": {"hugepages-2Mi": "4Mi"},
                    "requests": {"hugepages-2Mi": "2Mi", "cpu": "1"},
                }
            },
            ['.resources.requests: Invalid value: "2Mi": must be equal to hugepages-2Mi limit'],
        ),
        ({"resources": {"limits": {"kubernetes.io/x": "500m"}}}, []),
        (
            {"resources": {"limits": {"requests.example.com/x": "1"}}},
            [
                ".resources.limits[requests.example.com/x]: Invalid value: "
                '"requests.example.com/x": doesn\'t follow '
                "extended "
                "resource name standard"
            ],
        ),
        (
            {"livenessProbe": {"grpc": {"port": 0}, "successThreshold": 1}},
            [".livenessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive"],
        ),
        (
            {"readinessProbe": {"exec": {"command": ["a"]}, "terminationGracePeriodSeconds": 1}},
            [
                (
                    ".readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not "
                    "be set for readinessProbes"
                )
            ],
        ),
        (
            {"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}},
            [
                ".lifecycle.preStop.sleep: Invalid value: 31: must be greater than 0 and less than "
                "terminationGracePeriodSeconds "
                "(30). Enable AllowPodLifecycleSleepActionZeroValue feature gate for zero sleep."
            ],
        ),
        (
            {"volumeDevices": [{"name": "x", "devicePath": "/a/../b"}]},
            [
                '.volumeDevices[0].name: Not found: "x"',
                (
                    '.volumeDevices[0].devicePath: Invalid value: "/a/../b": can not contain '
                    "backsteps ('..')"
                ),
            ],
        ),
        (
            {"restartPolicy": "Always"},
            [".restartPolicy: Forbidden: may not be set for non-init containers"],
        ),
    ],
)
def test_containers(fields: Object, errors: list[str]) -> None:
    assert texts(CREATE(with_container(**fields))) == [C + e for e in errors]


def test_init_containers_report_a_repeated_name_twice() -> None:
    """Once among themselves, once among all: so does the real server."""
    twice = [container(name="i"), container(name="i")]
    assert (
        texts(CREATE(pod(initContainers=twice)))
        == ['spec.initContainers[1].name: Duplicate value: "i"'] * 2
    )


def test_a_sidecar_may_have_probes() -> None:
    probe = {"exec": {"command": ["a"]}, "successThreshold": 1}
    assert (
        CREATE(
            pod(initContainers=[container(name="i", restartPolicy="Always", livenessProbe=probe)])
        )
        == []
    )
    errors = texts(CREATE(pod(initContainers=[container(name="i", livenessProbe=probe)])))
    assert len(errors) == 1
    assert errors[0].startswith(
        "spec.initContainers[0].livenessProbe: Invalid value: core.Probe{Handler:core.Handler{"
    )
    assert errors[0].endswith("FailureThreshold:0}: must not be set for init containers")


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        (
            {"hostPID": True, "shareProcessNamespace": True},
            [
                "securityContext.shareProcessNamespace: Invalid value: true: "
                "ShareProcessNamespace and HostPID cannot both "
                "be "
                "enabled"
            ],
        ),
        (
            {"securityContext": {"sysctls": [{"name": "a.b"}, {"name": "a.b"}, {}]}},
            [
                'securityContext.sysctls[1].name: Duplicate value: "a.b"',
                "securityContext.sysctls[2].name: Required value",
            ],
        ),
        (
            {"securityContext": {"fsGroupChangePolicy": "x"}},
            [
                (
                    'securityContext.fsGroupChangePolicy: Unsupported value: "x": supported '
                    'values: "Always", "OnRootMismatch"'
                )
            ],
        ),
        (
            {"dnsConfig": {"searches": ["a."] * 7, "options": [{}]}},
            [
                'dnsConfig.searches: Invalid value: []string{"a.", "a.", "a.", "a.", "a.", '
                '"a.", "a."}: must not have more '
                "than 6 "
                "search paths",
                "dnsConfig.options[0]: Required value: must not be empty",
            ],
        ),
        (
            {"overhead": {"x": "1"}},
            [
                (
                    'overhead.limits[x]: Invalid value: "x": must be a standard resource type or '
                    "fully qualified"
                ),
                (
                    'overhead.limits[x]: Invalid value: "x": must be a standard resource for '
                    "containers"
                ),
            ],
        ),
        (
            {"preemptionPolicy": "x"},
            [
                (
                    'preemptionPolicy: Unsupported value: "x": supported values: '
                    '"PreemptLowerPriority", "Never"'
                )
            ],
        ),
        (
            {"runtimeClassName": ""},
            [
                'runtimeClassName: Invalid value: "": a lowercase RFC 1123 subdomain must '
                "consist of lower case "
                "alphanumeric "
                "characters, '-' or '.', and must start and end with an alphanumeric "
                "character (e.g. 'example.com', regex "
                "used for "
                "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ],
        ),
        ({"subdomain": "A"}, [f'subdomain: Invalid value: "A": {DNS_LABEL}']),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 1,
                                "preference": {"matchFields": [{"key": "x", "operator": "Exists"}]},
                            }
                        ]
                    }
                }
            },
            [
                "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0]"
                ".operator: "
                'Invalid value: "Exists": not a valid selector operator',
                "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].key: "
                'Invalid value: "x": not a valid field selector key',
            ],
        ),
        (
            {
                "tolerations": [
                    {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1}
                ]
            },
            [],
        ),
        (
            {"os": {"name": "bsd"}},
            ['os: Unsupported value: "bsd": supported values: "linux", "windows"'],
        ),
        (
            {"os": {"name": "windows"}, "hostPID": True, "securityContext": {"runAsUser": 1}},
            [
                "hostPID: Forbidden: cannot be set for a windows pod",
                "securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
            ],
        ),
        (
            {"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}},
            [
                (
                    "securityContext.windowsOptions: Forbidden: windows options cannot be set "
                    "for a linux pod"
                )
            ],
        ),
        (
            {"securityContext": {"windowsOptions": {"hostProcess": True}}},
            [
                (
                    "hostNetwork: Invalid value: false: hostNetwork must be true if pod contains "
                    "any hostProcess containers"
                )
            ],
        ),
        (
            {"schedulingGates": [{"name": "a"}, {"name": "a"}]},
            ['schedulingGates[1]: Duplicate value: "a"'],
        ),
        (
            {"ephemeralContainers": [container(name="e")]},
            ["ephemeralContainers: Forbidden: cannot be set on create"],
        ),
    ],
)
def test_pod_spec(spec: Object, errors: list[str]) -> None:
    assert texts(CREATE(pod(**spec))) == [f"spec.{e}" for e in errors]


@pytest.mark.parametrize(
    ("annotations", "errors"),
    [
        (
            {"kubernetes.io/config.mirror": "x"},
            [
                (
                    '[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName '
                    "if mirror pod annotation is set"
                )
            ],
        ),
        (
            {"seccomp.security.alpha.kubernetes.io/pod": "x"},
            [
                (
                    '.seccomp.security.alpha.kubernetes.io/pod: Invalid value: "x": must be a '
                    "valid seccomp profile"
                )
            ],
        ),
        (
            {"container.apparmor.security.beta.kubernetes.io/z": "x"},
            [
                (
                    '[container.apparmor.security.beta.kubernetes.io/z]: Invalid value: "z": '
                    "container not found"
                ),
                '[container.apparmor.security.beta.kubernetes.io/z]: Invalid value: "x": '
                'invalid AppArmor profile name: "x"',
            ],
        ),
        (
            {"scheduler.alpha.kubernetes.io/tolerations": "{}"},
            [
                ': Invalid value: "scheduler.alpha.kubernetes.io/tolerations": json: cannot '
                "unmarshal object into Go value "
                "of "
                "type []core.Toleration"
            ],
        ),
        (
            {"scheduler.alpha.kubernetes.io/tolerations": "["},
            [
                (
                    ': Invalid value: "scheduler.alpha.kubernetes.io/tolerations": unexpected '
                    "end of JSON input"
                )
            ],
        ),
    ],
)
def test_annotations(annotations: dict[str, str], errors: list[str]) -> None:
    assert texts(CREATE(pod({"annotations": annotations}))) == [
        f"metadata.annotations{e}" for e in errors
    ]


def test_seccomp_annotation_and_field_must_agree() -> None:
    made = pod(
        {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}},
        securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
    )
    assert texts(CREATE(made)) == [
        (
            "spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and "
            "field must match"
        )
    ]


def test_a_token_needs_a_service_account() -> None:
    volume = {
        "name": "v",
        "projected": {
            "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]
        },
    }
    assert CREATE(pod(volumes=[volume])) == []
    assert texts(CREATE(pod(volumes=[volume], serviceAccountName=""))) == [
        "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be "
        "specified when "
        "serviceAccountName is not set"
    ]
