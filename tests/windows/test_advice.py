"""What is reported about a submitted object, for nodes of which more or less is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.windows.advice import Advisor
from transom.windows.limits import LIMITS
from transom.windows.podchecks import seen_in_objects
from transom.windows.policy import UnknownRecord, WarningPolicy, parse_record_patterns
from transom.windows.target_nodes import target_nodes_from_options
from transom.windows.targeting import find_target_os, possible_systems

WINDOWS = {"kubernetes.io/os": "windows"}


def advisor(policy: WarningPolicy = WarningPolicy(), **target: Any) -> Advisor:  # noqa: B008
    return Advisor(target_nodes_from_options(**target), policy, lambda _: None)


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "example/app:1", **(container or {})}]
    return {
        "metadata": {"name": "p"},
        "spec": {"nodeSelector": WINDOWS, "containers": containers, **spec},
    }


def ids(texts: tuple[str, ...]) -> list[str]:
    return [text.partition(":")[0] for text in texts]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"runtime": "docker"}, ["WIN-POD-002"]),
        ({"runtime": "containerd"}, ["WIN-POD-003"]),
        ({}, ["WIN-POD-002"]),  # either, and this is the worse
        ({"release": (1, 24)}, ["WIN-POD-003"]),
    ],
)
def test_the_runtime_decides_and_if_it_is_not_known_the_worst(
    target: dict[str, Any], expected: list[str]
) -> None:
    assert ids(advisor(**target).review("Pod", pod(hostNetwork=True)).warnings) == expected


def test_what_depends_on_unknown_facts_is_not_reported() -> None:
    long = pod(terminationGracePeriodSeconds=600)
    assert ids(advisor().review("Pod", long).warnings) == []
    assert ids(advisor(runtime="docker").review("Pod", long).warnings) == ["WIN-POD-007"]


@pytest.mark.parametrize(
    ("release", "expected"), [((1, 19), ["WIN-SEC-011"]), ((1, 20), ["WIN-SEC-010"])]
)
def test_the_release_decides(release: tuple[int, int], expected: list[str]) -> None:
    made = pod(securityContext={"runAsUser": 1000})
    assert ids(advisor(release=release).review("Pod", made).warnings) == expected


def test_hints_are_reported_only_if_chosen() -> None:
    made = pod(volumes=[{"name": "v", "csi": {"driver": "d"}}])
    assert advisor().review("Pod", made) == ((), ())
    assert ids(advisor(WarningPolicy(reject=("WIN-STO-014",))).review("Pod", made).refusals) == [
        "WIN-STO-014"
    ]


def test_what_an_object_had_stays_allowed() -> None:
    strict = advisor(WarningPolicy(reject=("WIN-POD-004", "WIN-POD-005")))
    had, more = pod(hostPID=True), pod(hostPID=True, hostIPC=True)
    assert ids(strict.review("Pod", had).refusals) == ["WIN-POD-004"]
    same = strict.review("Pod", had, had)
    assert (ids(same.warnings), same.refusals) == (["WIN-POD-004"], ())
    assert ids(strict.review("Pod", more, had).refusals) == ["WIN-POD-005"]


def test_texts_are_single_lines_of_bearable_length() -> None:
    for limit in LIMITS.values():
        if seen_in_objects(limit):
            text = f"{limit.id}: {limit.title}. {limit.remedy}"
            assert "\n" not in text and len(text) < 400, limit.id


def test_a_path_below_a_mount_exists() -> None:
    mounts = {"args": ["/etc/app/config"], "volumeMounts": [{"name": "v", "mountPath": "/etc/app"}]}
    assert advisor().review("Pod", pod(mounts)).warnings == ()
    assert ids(advisor().review("Pod", pod({"args": ["/etc/app/config"]})).warnings) == [
        "WIN-CTR-004"
    ]


def test_a_runtime_class_that_is_not_known_may_select_nodes() -> None:
    loose = pod(nodeSelector={})
    loose["spec"]["containers"][0]["image"] = "mcr.microsoft.com/windows/nanoserver:1809"
    assert ids(advisor().review("Pod", loose).warnings) == ["WIN-POD-010"]
    loose["spec"]["runtimeClassName"] = "windows-2019"
    assert advisor().review("Pod", loose).warnings == ()


def test_patterns_mean_records() -> None:
    assert parse_record_patterns(["win-pod-003", " WIN-STO-* ", "WIN-STO-*"]) == (
        "WIN-POD-003",
        "WIN-STO-*",
    )
    for wrong in ("WIN-POD-999", "WIN-STOR-*", "WIN-CTR-007"):  # the last is shown by no object
        with pytest.raises(UnknownRecord):
            parse_record_patterns([wrong])


LABELS = st.dictionaries(
    st.sampled_from(
        ["kubernetes.io/os", "beta.kubernetes.io/os", "node.kubernetes.io/windows-build", "disk"]
    ),
    st.sampled_from(["windows", "linux", "Windows", "10.0.17763"]),
    max_size=2,
)
CONTEXTS = st.one_of(st.none(), st.just({}), st.just({"windowsOptions": {"runAsUserName": "a"}}))
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {
            "image": st.sampled_from(
                ["nginx", "mcr.microsoft.com/windows/nanoserver:1809", "example/app", ""]
            ),
            "securityContext": CONTEXTS,
        }
    ),
    max_size=2,
)
TERMS = st.lists(
    st.fixed_dictionaries(
        {
            "matchExpressions": st.lists(
                st.fixed_dictionaries(
                    {
                        "key": st.sampled_from(["kubernetes.io/os", "disk"]),
                        "operator": st.sampled_from(["In", "NotIn"]),
                        "values": st.lists(st.sampled_from(["windows", "linux"]), min_size=1),
                    }
                ),
                max_size=2,
            )
        }
    ),
    max_size=2,
)
SPECS = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={
        "nodeSelector": LABELS,
        "securityContext": CONTEXTS,
        "initContainers": CONTAINERS,
        "runtimeClassName": st.sampled_from(["", "windows-1809", "gvisor"]),
        "os": st.just({"name": "windows"}),
        "tolerations": st.lists(
            st.fixed_dictionaries(
                {"key": st.sampled_from(["os", "x"]), "value": st.just("windows")}
            )
        ),
        "affinity": st.fixed_dictionaries(
            {
                "nodeAffinity": st.fixed_dictionaries(
                    {
                        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                            {"nodeSelectorTerms": TERMS}
                        )
                    }
                )
            }
        ),
    },
)


@given(SPECS)
def test_the_quick_look_misses_no_pod_for_windows(spec: dict[str, Any]) -> None:
    if find_target_os({"spec": spec}).windows:
        assert possible_systems(spec)
