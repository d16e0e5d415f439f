"""Validation of PodSecurityPolicies, with the exact messages of 1.20."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery import validation
from transom.machinery.kinds import BY_KEY

PSP = BY_KEY["policy/PodSecurityPolicy"]
ANY = {"rule": "RunAsAny"}


def problems(annotations: dict[str, str] | None = None, **spec: Any) -> list[str]:
    spec = {
        "seLinux": ANY,
        "runAsUser": ANY,
        "fsGroup": ANY,
        "supplementalGroups": ANY,
        "allowPrivilegeEscalation": True,
        **spec,
    }
    obj = {"metadata": {"name": "p", "annotations": annotations or {}}, "spec": spec}
    return [str(error) for error in validation.validate_create(PSP, obj)]


def test_a_policy_that_allows_everything() -> None:
    assert (
        problems(
            volumes=["*", "ephemeral"],
            allowedCapabilities=["*"],
            allowedUnsafeSysctls=["*"],
            hostPID=True,
            runtimeClass={"allowedRuntimeClassNames": ["*"], "defaultRuntimeClassName": "any"},
        )
        == []
    )


_REGEX = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?\.)*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]"
_DROPPED = "capability is listed in allowedCapabilities and requiredDropCapabilities"


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        (
            {"runAsUser": {"ranges": [{"min": -1, "max": -2}]}},
            [
                (
                    'spec.runAsUser.rule: Unsupported value: "": supported values: "MustRunAs", '
                    '"MustRunAsNonRoot", "RunAsAny"'
                ),
                "spec.runAsUser.ranges[0].min: Invalid value: -1: min cannot be negative",
                "spec.runAsUser.ranges[0].max: Invalid value: -2: max cannot be negative",
                "spec.runAsUser.ranges[0].min: Invalid value: -1: min cannot be greater than max",
            ],
        ),
        (
            {"runAsGroup": {"rule": "x"}},
            [
                (
                    'spec.runAsGroup.rule: Unsupported value: "x": supported values: '
                    '"MustRunAs", "RunAsAny", "MayRunAs"'
                )
            ],
        ),
        (
            {"runAsGroup": {"rule": "MustRunAs"}},
            [
                (
                    "spec.runAsGroup.ranges: Invalid value: []policy.IDRange(nil): must provide "
                    "at least one range"
                )
            ],
        ),
        (
            {"runAsGroup": {"rule": "RunAsAny", "ranges": [{"min": 1, "max": 2}]}},
            [
                (
                    "spec.runAsGroup.ranges: Invalid value: "
                    "[]policy.IDRange{policy.IDRange{Min:1, Max:2}}: Ranges must be empty"
                )
            ],
        ),
        (
            {"seLinux": {"rule": "x"}, "fsGroup": {}},
            [
                (
                    'spec.seLinux.rule: Unsupported value: "x": supported values: "MustRunAs", '
                    '"RunAsAny"'
                ),
                (
                    'spec.fsGroup.rule: Unsupported value: "": supported values: "MayRunAs", '
                    '"MustRunAs", "RunAsAny"'
                ),
            ],
        ),
        (
            {"requiredDropCapabilities": ["A"], "allowedCapabilities": ["*", "A"]},
            [
                'requiredDropCapabilities: Invalid value: []core.Capability{"A"}: '
                "must be empty when all capabilities are allowed by a wildcard",
                f'allowedCapabilities: Invalid value: "A": {_DROPPED}',
            ],
        ),
        (
            {"defaultAllowPrivilegeEscalation": True, "allowPrivilegeEscalation": False},
            [
                "spec.defaultAllowPrivilegeEscalation: Invalid value: true: Cannot set "
                "DefaultAllowPrivilegeEscalation to true "
                "without also setting AllowPrivilegeEscalation to true",
            ],
        ),
        (
            {"allowedHostPaths": [{"pathPrefix": "/a/../.."}, {}, {"pathPrefix": ".."}]},
            [
                "spec.allowedHostPaths[0]: Invalid value: \"/a/../..\": must not contain '..'",
                "spec.allowedHostPaths[1]: Required value: is required",
            ],
        ),
        (
            {"allowedFlexVolumes": [{}], "allowedCSIDrivers": [{"name": "d"}, {}]},
            [
                (
                    "spec.allowedFlexVolumes.allowedFlexVolumes[0].driver: Required value: must "
                    "specify a driver"
                ),
                "spec.allowedCSIDrivers.allowedCSIDriver[1].name: Required value",
            ],
        ),
        (
            {"allowedProcMountTypes": ["x"]},
            [
                (
                    'spec.allowedProcMountTypes[0]: Unsupported value: "x": supported values: '
                    '"Default", "Unmasked"'
                )
            ],
        ),
        (
            {"allowedUnsafeSysctls": ["", "*", "A"]},
            [
                'spec.allowedUnsafeSysctls[0]: Invalid value: "": empty sysctl not allowed',
                (
                    'spec.allowedUnsafeSysctls[2]: Invalid value: "A": must have at most 253 '
                    f"characters and match regex {_REGEX}"
                ),
                (
                    "spec.allowedUnsafeSysctls.items: Forbidden: if '*' is present, must not "
                    "specify other sysctls"
                ),
            ],
        ),
        (
            {"allowedUnsafeSysctls": ["a.b", "c.*", "d"], "forbiddenSysctls": ["a.*", "c.d", "d"]},
            [
                'spec.allowedUnsafeSysctls[0]: Invalid value: "a.b": sysctl overlaps with a.*',
                'spec.forbiddenSysctls[1]: Invalid value: "c.d": sysctl overlaps with c.*',
                'spec.allowedUnsafeSysctls[2]: Invalid value: "d": sysctl overlaps with d',
            ],
        ),
        (
            {
                "runtimeClass": {
                    "allowedRuntimeClassNames": ["a", "a"],
                    "defaultRuntimeClassName": "b",
                }
            },
            [
                'spec.runtimeClass.allowedRuntimeClassNames[1]: Duplicate value: "a"',
                (
                    'spec.runtimeClass.allowedRuntimeClassNames: Required value: default "b" '
                    "must be allowed"
                ),
            ],
        ),
        (
            {"runtimeClass": {"allowedRuntimeClassNames": ["*", "a"]}},
            [
                'spec.runtimeClass.allowedRuntimeClassNames: Invalid value: []string{"*", "a"}: '
                "if '*' is present, must not specify other RuntimeClass names",
            ],
        ),
    ],
)
def test_refusals(spec: dict[str, Any], texts: list[str]) -> None:
    assert [text for text in problems(**spec) if "RFC 1123" not in text] == texts


def test_volumes_are_known_kinds() -> None:
    (text,) = problems(volumes=["nfs", "tape"])
    assert text.startswith(
        'spec.volumes: Unsupported value: "tape": supported values: "*", "awsElasticBlockStore", '
    )


@pytest.mark.parametrize(
    ("key", "value", "texts"),
    [
        (
            "apparmor.security.beta.kubernetes.io/defaultProfileName",
            "x",
            ['"x": invalid AppArmor profile name: "x"'],
        ),
        (
            "apparmor.security.beta.kubernetes.io/allowedProfileNames",
            "runtime/default,x,localhost/y",
            ['"runtime/default,x,localhost/y": invalid AppArmor profile name: "x"'],
        ),
        (
            "seccomp.security.alpha.kubernetes.io/defaultProfileName",
            "x",
            ['"x": must be a valid seccomp profile'],
        ),
        (
            "seccomp.security.alpha.kubernetes.io/allowedProfileNames",
            "*,docker/default,x",
            ['"x": must be a valid seccomp profile'],
        ),
    ],
)
def test_profiles_in_annotations(key: str, value: str, texts: list[str]) -> None:
    assert problems({key: value}) == [
        f"metadata.annotations[{key}]: Invalid value: {text}" for text in texts
    ]


def test_an_update_is_judged_like_a_new_policy() -> None:
    old = {
        "metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
        "spec": {"seLinux": ANY, "runAsUser": ANY, "fsGroup": ANY, "supplementalGroups": ANY},
    }
    assert validation.validate_update(PSP, old, old) == []
    new = {**old, "spec": {**old["spec"], "seLinux": {}}}
    assert [error.field for error in validation.validate_update(PSP, new, old)] == [
        "spec.seLinux.rule"
    ]
