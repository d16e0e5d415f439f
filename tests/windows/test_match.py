from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.windows import match
from transom.windows.limits import LIMITS
from transom.windows.match import LimitMatcher, condition_met, record_holds, steps_text
from transom.windows.records import NodeTarget, Record, RecordField, WindowsLimit
from transom.windows.support import SUPPORT

BARE = {"title": "t", "statement": "s.", "effect": "ignored", "remedy": "r."}
RECORDS: dict[str, Record] = {**LIMITS, **SUPPORT}


def limit(*fields: RecordField, **more: Any) -> WindowsLimit:
    return WindowsLimit(**{"id": "WIN-POD-999", "fields": fields, **BARE, **more})


def found(limits: WindowsLimit, kind: str, obj: dict[str, Any]) -> list[str]:
    return [hit.path for hit in LimitMatcher([limits]).find(kind, obj)]


@pytest.mark.parametrize(
    ("id", "target", "expected"),
    [
        ("WIN-SEC-011", NodeTarget((1, 19)), True),
        ("WIN-SEC-011", NodeTarget((1, 20)), False),
        ("WIN-SEC-010", NodeTarget((1, 19)), False),
        ("WIN-SEC-010", NodeTarget((1, 34)), True),
        ("WIN-POD-002", NodeTarget(runtime="docker"), True),
        ("WIN-POD-002", NodeTarget(runtime="containerd"), False),
        ("WIN-POD-002", NodeTarget(), True),  # not stated
        ("WIN-SVC-002", NodeTarget(build=17763), True),
        ("WIN-SVC-002", NodeTarget(build=20348), False),
        ("WIN-SVC-002", NodeTarget((1, 19), build=17763), False),
        ("WIN-SVC-005", NodeTarget(), True),
        ("WIN-SVC-005", NodeTarget(features=frozenset({"dsr"})), False),
        ("WIN-OS-010", NodeTarget(runtime="docker"), False),
        (
            "WIN-OS-010",
            NodeTarget((1, 16), runtime="docker", features=frozenset({"HyperVContainer"})),
            True,
        ),
        ("WIN-OS-012", NodeTarget((1, 16), features=frozenset({"HyperVContainer"})), False),
        ("WIN-OS-012", NodeTarget((1, 20), features=frozenset({"HyperVContainer"})), True),
        ("WIN-OS-012", NodeTarget((1, 20)), True),
        ("WIN-OS-012", NodeTarget((1, 21)), False),
        ("WIN-OS-009", NodeTarget((1, 16)), True),
        ("WIN-OS-009", NodeTarget((1, 17)), False),
        ("WIN-OS-004", NodeTarget((1, 16), features=frozenset({"HyperVContainer"})), False),
        ("WIN-OS-004", NodeTarget((1, 20), features=frozenset({"HyperVContainer"})), True),
        ("WIN-OS-004", NodeTarget((1, 20), features=frozenset({"hyperv"})), True),
        ("WIN-OS-004", NodeTarget((1, 24), features=frozenset({"hyperv"})), False),
        ("WIN-NET-013", NodeTarget(network="l2bridge"), False),
        ("WIN-NET-013", NodeTarget(network="overlay"), True),
        # Updates: known to be missing, known to be there, not known.
        ("WIN-NET-010", NodeTarget(build=17763, network="overlay", revision=378), True),
        ("WIN-NET-010", NodeTarget(build=17763, network="overlay", revision=379), False),
        ("WIN-NET-010", NodeTarget(build=17763, network="overlay"), False),
        ("WIN-NET-010", NodeTarget(build=18362, network="overlay", revision=1), False),
        ("WIN-NET-015", NodeTarget(build=17763, revision=1697), True),
        ("WIN-NET-015", NodeTarget(build=19041, revision=609), True),
        ("WIN-NET-015", NodeTarget(build=19041, revision=610), False),
        ("SUP-SVC-012", NodeTarget(build=19041, revision=609), False),
        ("SUP-SVC-012", NodeTarget(build=19041, revision=610), True),
        ("SUP-SVC-012", NodeTarget(build=19042, revision=1), True),
        ("SUP-SVC-012", NodeTarget(build=17763), False),
        ("SUP-SVC-010", NodeTarget(build=18362), False),
        ("SUP-SVC-010", NodeTarget(build=18362, features=frozenset({"dsr"})), True),
    ],
)
def test_where_records_hold(id: str, target: NodeTarget, expected: bool) -> None:
    assert record_holds(RECORDS[id], target) == expected


@pytest.mark.parametrize(
    ("test", "value", "yes", "no"),
    [
        ("set", "", [1, False, 0, "x", {"a": 1}], [None, "", [], {}]),
        ("is", True, [True], [False, 1, "true", None]),
        ("is", "x", ["x"], ["y", True, None]),
        ("not", 420, [0o400, 1], [420, None]),
        ("one-of", ("a", "b"), ["a", "b"], ["c", None, ["a"]]),
        ("none-of", ("a", "b"), ["c"], ["a", None]),
        ("matches", "^/etc", ["/etc/x"], ["C:/etc", 5, None]),
        ("above", 30, [31, 30.5], [30, True, "60", None]),
        ("below", 1, [0, -1], [1, False, None]),
        ("longer", 1, [[1, 2], {"a": 1, "b": 2}], [[1], "ab", None]),
    ],
)
def test_how_values_are_looked_at(test: Any, value: Any, yes: list[Any], no: list[Any]) -> None:
    one = limit(RecordField("spec.x", test, value))
    assert [found(one, "Pod", {"spec": {"x": v}}) for v in yes] == [["spec.x"]] * len(yes)
    assert [found(one, "Pod", {"spec": {"x": v}}) for v in no] == [[]] * len(no)


def test_paths() -> None:
    containers = limit(RecordField("spec.containers[*].securityContext.privileged", "is", True))
    privileged = {"securityContext": {"privileged": True}}
    spec = {
        "initContainers": [privileged],
        "containers": [{}, privileged],
        "ephemeralContainers": [privileged],
    }
    paths = [
        f"spec.{place}.securityContext.privileged"
        for place in ("initContainers[0]", "containers[1]", "ephemeralContainers[0]")
    ]
    assert found(containers, "Pod", {"spec": spec}) == paths
    # In a template, from the root of the object that has it.
    cron = {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}
    assert found(containers, "CronJob", cron) == [
        "spec.jobTemplate.spec.template." + path for path in paths
    ]
    assert found(containers, "ConfigMap", {"spec": spec}) == []
    keys = limit(
        RecordField("metadata.annotations['a.b/c*']"), RecordField("spec.limits.hugepages-*")
    )
    annotated = {
        "metadata": {"annotations": {"a.b/cd": "1", "a.b/x": "1"}},
        "spec": {"limits": {"hugepages-2Mi": 1, "cpu": 1}},
    }
    assert found(keys, "Pod", annotated) == [
        "metadata.annotations[a.b/cd]",
        "spec.limits.hugepages-2Mi",
    ]
    assert found(
        limit(RecordField("spec.command[0]", "is", "sh")),
        "Pod",
        {"spec": {"command": ["sh", "sh"]}},
    ) == ["spec.command[0]"]
    service = limit(RecordField("spec.type", "is", "NodePort", kind="Service"))
    assert found(service, "Service", {"spec": {"type": "NodePort"}}) == ["spec.type"]
    assert found(service, "Pod", {"spec": {"type": "NodePort"}}) == []


def test_what_is_not_there() -> None:
    absent = limit(RecordField("spec.containers[*].resources.limits", "absent"))
    pod = {"spec": {"containers": [{"resources": {}}, {"resources": {"limits": {}}}, {}]}}
    assert found(absent, "Pod", pod) == ["spec.containers[0].resources.limits"]
    with pytest.raises(ValueError, match="only a key"):
        LimitMatcher([limit(RecordField("spec.containers[*]", "absent"))])


def test_other_conditions() -> None:
    given, unless = (RecordField("spec.os", "is", "windows"),), (RecordField("spec.list[*].ok"),)
    both = limit(RecordField("spec.a"), RecordField("spec.b"), given=given, unless=unless)
    assert found(both, "Pod", {"spec": {"a": 1, "b": 1, "os": "windows"}}) == ["spec.a", "spec.b"]
    assert found(both, "Pod", {"spec": {"a": 1, "os": "linux"}}) == []
    assert found(both, "Pod", {"spec": {"a": 1, "os": "windows", "list": [{}, {"ok": True}]}}) == []


def test_a_value_is_reported_once() -> None:
    twice = limit(RecordField("spec.a", "matches", "x"), RecordField("spec.a", "matches", "y"))
    assert found(twice, "Pod", {"spec": {"a": "xy"}}) == ["spec.a"]


def test_strange_objects_are_looked_at_too() -> None:
    every = LimitMatcher(LIMITS.values())
    for pod in (
        {},
        {"spec": None},
        {"spec": []},
        {"spec": {"containers": {"a": 1}}},
        {"spec": {"containers": [None, "x", 5]}},
        {"spec": {"containers": [{"securityContext": [1], "command": "sh"}]}, "metadata": "x"},
    ):
        assert every.find("Pod", pod) == []
        assert every.find("Deployment", {"spec": {"template": pod}}) == []


KEYS = st.sampled_from(["a", "b", "list"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["", "x", "sh"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=12,
)
PARTS = st.lists(st.sampled_from(["a", "b", "list", "[*]", "[0]", "a*"]), min_size=1, max_size=4)
FIELDS = st.builds(
    lambda parts, test: RecordField(
        "x" + "".join(p if p.startswith("[") else f".{p}" for p in parts), *test
    ),
    PARTS,
    st.sampled_from(
        [
            ("set", ""),
            ("is", True),
            ("not", 1),
            ("one-of", (1, "x")),
            ("above", 1),
            ("longer", 1),
            ("absent", ""),
        ]
    ),
).filter(lambda field: field.test != "absent" or field.path[-1] not in "]*")


@given(st.lists(FIELDS, min_size=1, max_size=4), VALUES)
def test_one_walk_finds_what_each_field_finds_alone(fields: list[RecordField], value: Any) -> None:
    obj = {"x": value}
    limits = [limit(field, id=f"WIN-POD-{i:03}") for i, field in enumerate(fields)]
    together = {hit.limit.id for hit in LimitMatcher(limits).find("Pod", obj)}
    assert together == {one.id for one in limits if condition_met(one.fields[0], "Pod", obj)}
    for hit in LimitMatcher(limits).find("Pod", obj):
        inner: Any = obj
        for step in hit.steps[:-1]:
            inner = inner[step]
        assert hit.field.test == "absent" or inner[hit.steps[-1]] is hit.value


def test_paths_are_written_as_kubernetes_writes_them() -> None:
    assert steps_text(("spec", "containers", 0, "image")) == "spec.containers[0].image"
    assert steps_text(("metadata", "annotations", "a.b/c")) == "metadata.annotations[a.b/c]"
    with pytest.raises(ValueError, match="not a path"):
        match.parts_of_pod("spec[")
