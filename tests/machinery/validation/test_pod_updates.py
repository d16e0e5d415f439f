"""Updates of pods, of their status and of their ephemeral containers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.machinery.validation.pods import (
    STATUS,
    SUBRESOURCES,
    UPDATE,
    Object,
    container,
    pod,
    texts,
)

TOLERATION = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
FORBIDDEN = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
    "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds` or `spec.tolerations` "
    "(only additions to existing "
    "tolerations)\n"
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"containers": [container(image="other")]}),
        ({}, {"activeDeadlineSeconds": 5}),
        ({"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 4}),
        (
            {"tolerations": [TOLERATION]},
            {"tolerations": [{"operator": "Exists"}, {**TOLERATION, "tolerationSeconds": 3}]},
        ),
        ({"schedulingGates": [{"name": "a"}]}, {"nodeSelector": {"a": "b"}}),
        ({"serviceAccount": "default"}, {}),
    ],
)
def test_updates_that_pass(old: Object, new: Object) -> None:
    assert texts(UPDATE(pod(**new), pod(**old))) == []


@pytest.mark.parametrize(
    ("old", "new", "errors"),
    [
        (
            {"activeDeadlineSeconds": 5},
            {},
            [
                (
                    'spec.activeDeadlineSeconds: Invalid value: "null": must not update from a '
                    "positive integer to nil value"
                )
            ],
        ),
        (
            {"tolerations": [TOLERATION]},
            {"tolerations": [{**TOLERATION, "effect": "NoSchedule"}]},
            [
                (
                    "spec.tolerations: Forbidden: existing toleration can not be modified except "
                    "its tolerationSeconds"
                )
            ],
        ),
        (
            {},
            {"initContainers": [container(name="i")]},
            ["spec.initContainers: Forbidden: pod updates may not add or remove containers"],
        ),
        (
            {},
            {"schedulingGates": [{"name": "a"}]},
            [
                (
                    "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but "
                    "found new scheduling gate 'a'"
                )
            ],
        ),
    ],
)
def test_updates_that_fail(old: Object, new: Object, errors: list[str]) -> None:
    assert texts(UPDATE(pod(**new), pod(**old))) == errors


@pytest.mark.parametrize(
    "new",
    [
        {"nodeName": "n"},
        {"containers": [container(tty=True)]},
        {"terminationGracePeriodSeconds": 31},
        {"hostPID": True},
        {"nodeSelector": {"a": "b"}},
    ],
)
def test_everything_else_is_fixed(new: Object) -> None:
    errors = texts(UPDATE(pod(**new), pod()))
    assert len(errors) == 1
    assert errors[0].startswith(FORBIDDEN + "  core.PodSpec{\n")


def test_annotations_that_may_not_change() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/c"
    old, new = pod({"annotations": {key: "unconfined"}}), pod()
    assert texts(UPDATE(new, old)) == [
        f"metadata.annotations[{key}]: Forbidden: may not remove or update AppArmor annotations"
    ]
    assert texts(UPDATE(old, new)) == [
        f"metadata.annotations[{key}]: Forbidden: may not add AppArmor annotations"
    ]


def _status(old: Object, new: Object, **spec: Any) -> list[str]:
    return texts(STATUS({**pod(**spec), "status": new}, {**pod(**spec), "status": old}))


def test_a_container_that_ended_stays_ended() -> None:
    ended = {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 1}}}]}
    running = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
    assert _status(ended, running, restartPolicy="OnFailure") == []
    assert _status(ended, running, restartPolicy="Never") == [
        (
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to "
            "non-terminated state"
        )
    ]


def test_pod_addresses() -> None:
    def ips(*addresses: str) -> Object:
        return {"podIPs": [{"ip": address} for address in addresses]}

    assert _status({}, ips("10.0.0.1", "fd00::1")) == []
    assert _status({}, ips("10.0.0.1", "10.0.0.1")) == [
        'status.podIPs: Invalid value: []core.PodIP{core.PodIP{IP:"10.0.0.1"}, '
        'core.PodIP{IP:"10.0.0.1"}}: may '
        "specify no "
        "more than one IP for each IP family",
        'status.podIPs[1]: Duplicate value: core.PodIP{IP:"10.0.0.1"}',
    ]
    assert _status(ips("x"), ips("y")) == []  # what was bad before may stay bad


def test_conditions_of_others_are_qualified_names() -> None:
    errors = _status({}, {"conditions": [{"type": "Ready"}, {"type": "a b"}]})
    assert [e.partition(":")[0] for e in errors] == ["metadata.conditions[1].Type"]


def test_ephemeral_containers_are_only_added() -> None:
    update = SUBRESOURCES["ephemeralcontainers"]
    old = pod(ephemeralContainers=[container(name="a")])
    assert (
        texts(update(pod(ephemeralContainers=[container(name="b"), container(name="a")]), old))
        == []
    )
    assert texts(
        update(
            pod(
                ephemeralContainers=[
                    container(name="c", ports=[{"containerPort": 1, "protocol": "TCP"}])
                ]
            ),
            pod(),
        )
    ) == [
        'spec.ephemeralContainers[0].name: Duplicate value: "c"',
        "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
    ]
    assert texts(update(pod(), old)) == [
        (
            'spec.ephemeralContainers: Forbidden: existing ephemeral containers "a" may not be '
            "removed\n"
        )
    ]
    changed = texts(update(pod(ephemeralContainers=[container(name="a", image="j")]), old))
    assert changed[0].startswith(
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "a" may not be '
        "changed\n"
    )
