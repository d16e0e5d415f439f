from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import fieldset as fs
from transom.machinery import managedfields as mf
from transom.machinery import schema
from transom.machinery.kinds import GVK
from transom.machinery.normalise import normalise_value
from transom.machinery.typed import DEDUCED

CONFIGMAP = schema.lookup_schema_type(GVK("", "v1", "ConfigMap"))
POD = schema.lookup_schema_type(GVK("", "v1", "Pod"))
assert CONFIGMAP is not None
assert POD is not None


def t(seconds: int) -> str:
    return f"2021-01-01T00:00:{seconds:02}Z"


def cm(data: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **meta}}
    return normalise_value(CONFIGMAP, {**body, "data": data} if data else body)


def write(
    live: dict[str, Any] | None, new: dict[str, Any], manager: str, at: int, **more: Any
) -> dict[str, Any]:
    entries = mf.on_update(live, new, CONFIGMAP, manager, "v1", t(at), **more)
    return {**new, "metadata": {**new["metadata"], "managedFields": entries, "uid": "u"}}


def owners(obj: dict[str, Any]) -> dict[str, Any]:
    return {e["manager"]: e["fieldsV1"] for e in obj["metadata"]["managedFields"]}


def test_a_create_owns_what_it_sets_and_nothing_of_the_system() -> None:
    obj = cm(
        {"a": "1"}, labels={"l": "1"}, uid="x", generation=1, resourceVersion="5", finalizers=["f"]
    )
    assert mf.on_update(None, obj, CONFIGMAP, "m", "v1", t(1)) == [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "time": t(1),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:a": {}},
                "f:metadata": {
                    "f:labels": {".": {}, "f:l": {}},
                    "f:finalizers": {".": {}, 'v:"f"': {}},
                },
            },
        }
    ]
    assert mf.on_update(None, cm(), CONFIGMAP, "m", "v1", t(1)) == []
    assert mf.on_update(None, obj, CONFIGMAP, "", "v1", t(1))[0]["manager"] == "unknown"


def test_fields_that_are_always_written_are_not_set_by_the_client() -> None:
    pod = normalise_value(POD, {"spec": {"containers": [{"name": "c", "resources": {}}]}})
    fields = mf.on_update(None, pod, POD, "m", "v1", t(1))[0]["fieldsV1"]
    assert fields == {
        "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:resources": {}}}}
    }


def test_a_change_moves_the_field_and_a_removal_drops_it() -> None:
    live = write(None, cm({"a": "1", "b": "1"}), "one", 1)
    live = write(live, cm({"a": "2", "b": "1"}), "two", 2)
    assert owners(live) == {"one": {"f:data": {".": {}, "f:b": {}}}, "two": {"f:data": {"f:a": {}}}}
    live = write(live, cm({"b": "1"}), "three", 3)
    assert owners(live) == {"one": {"f:data": {".": {}, "f:b": {}}}}
    assert live["metadata"]["managedFields"][0]["time"] == t(1)


def test_time_moves_only_when_a_set_changes() -> None:
    live = write(None, cm({"a": "1"}), "one", 1)
    again = write(live, cm({"a": "2"}), "one", 5)
    assert again["metadata"]["managedFields"][0]["time"] == t(1)
    more = write(again, cm({"a": "2", "b": "1"}), "one", 6)
    assert more["metadata"]["managedFields"][0]["time"] == t(6)


def test_no_change_keeps_the_entries() -> None:
    live = write(None, cm({"a": "1"}), "one", 1)
    assert (
        mf.on_update(live, cm({"a": "1"}, generation=7), CONFIGMAP, "two", "v1", t(2))
        is (live["metadata"]["managedFields"])
    )


@pytest.mark.parametrize(
    ("sent", "want"),
    [
        ([], []),
        ([{}], []),
        ([{"manager": "x"}], ["one"]),
        (
            [
                {
                    "manager": "x",
                    "operation": "Update",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"bad": {}},
                }
            ],
            ["one"],
        ),
        (
            [
                {
                    "manager": "x",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:data": {"f:a": {}}},
                }
            ],
            ["x"],
        ),
        (
            [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}],
            [],
        ),
    ],
)
def test_entries_sent_by_a_client(sent: list[Any], want: list[str]) -> None:
    live = write(None, cm({"a": "1"}), "one", 1)
    new = cm({"a": "1"})
    new["metadata"]["managedFields"] = sent
    assert [e["manager"] for e in mf.on_update(live, new, CONFIGMAP, "two", "v1", t(2))] == want
    assert [
        e["manager"]
        for e in mf.on_update(live, new, CONFIGMAP, "two", "v1", t(2), ignore_request=True)
    ] == ["one"]


def test_after_a_reset_nothing_is_tracked() -> None:
    live = {**cm({"a": "1"}), "metadata": {"name": "c", "uid": "u"}}
    assert mf.on_update(live, cm({"a": "2"}), CONFIGMAP, "two", "v1", t(2)) == []


def test_an_object_whose_elements_have_no_names_has_no_owners() -> None:
    pod = {"spec": {"containers": [{"name": "c", "env": [{"name": "A"}, {"name": "A"}]}]}}
    assert mf.on_update(None, normalise_value(POD, pod), POD, "m", "v1", t(1)) == []


def test_the_oldest_updaters_become_one() -> None:
    live = write(None, cm({"k0": "1"}), "m0", 0)
    data = {"k0": "1"}
    for i in range(1, 12):
        data = {**data, f"k{i}": "1"}
        live = write(live, cm(data), f"m{i:02}", i)
    entries = live["metadata"]["managedFields"]
    assert [e["manager"] for e in entries] == [
        "ancient-changes",
        *(f"m{i:02}" for i in range(3, 12)),
    ][:10]
    assert entries[0]["time"] == t(2)
    assert entries[0]["fieldsV1"] == {"f:data": {".": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}}}


def test_appliers_come_first_then_by_time_and_name() -> None:
    def entry(manager: str, operation: str, time: str) -> dict[str, Any]:
        return {
            "manager": manager,
            "operation": operation,
            "apiVersion": "v1",
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {f"f:{manager}": {}}},
        }

    live = cm({"a": "1"})
    live["metadata"] |= {
        "uid": "u",
        "managedFields": [
            entry("b", "Update", t(2)),
            entry("c", "Apply", t(9)),
            entry("a", "Update", t(2)),
            entry("d", "Update", t(1)),
        ],
    }
    new = cm({"a": "2"})
    got = mf.on_update(live, new, CONFIGMAP, "z", "v1", t(1))
    assert [e["manager"] for e in got] == ["c", "d", "z", "b"]


def test_entries_of_other_versions() -> None:
    live = cm({"a": "1"})
    live["metadata"] |= {
        "uid": "u",
        "managedFields": [
            {
                "manager": m,
                "operation": "Update",
                "apiVersion": v,
                "time": t(1),
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}},
            }
            for m, v in (("old", "v0"), ("gone", "v9"))
        ],
    }

    def convert(obj: dict[str, Any], version: str) -> dict[str, Any] | None:
        return obj if version == "v0" else None

    got = mf.on_update(live, cm({"a": "2"}), CONFIGMAP, "m", "v1", t(2), convert)
    assert {e["manager"]: e["fieldsV1"] for e in got} == {
        "old": {"f:data": {"f:b": {}}},
        "m": {"f:data": {"f:a": {}}},
    }


def test_user_agents() -> None:
    assert mf.manager_from_user_agent("kubectl/v1.20 (linux)") == "kubectl"
    assert mf.manager_from_user_agent("a\tb/1") == "ab"
    assert mf.manager_from_user_agent("x" * 200) == "x" * 128
    assert mf.manager_from_user_agent("é" * 100) == "é" * 64


values = st.recursive(
    st.none() | st.integers(0, 2) | st.text("x", max_size=1),
    lambda v: st.lists(v, max_size=2) | st.dictionaries(st.sampled_from("abc"), v, max_size=3),
)
objects = st.fixed_dictionaries({}, optional={"spec": values, "status": values})


def leaves(value: Any, path: fs.Path = ()) -> dict[fs.Path, Any]:
    """Where a value without a schema has its leaves: lists and empty maps are taken whole."""
    if isinstance(value, dict) and value:
        return {
            p: v for k, below in value.items() for p, v in leaves(below, (*path, f"f:{k}")).items()
        }
    return {path: value}


@given(objects, objects)
def test_every_changed_leaf_has_one_owner_and_every_other_keeps_its(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    entries = mf.on_update(None, old, DEDUCED, "first", "v1", t(1))
    live = {**old, "metadata": {"managedFields": entries}}
    after = mf.on_update(live, new, DEDUCED, "second", "v1", t(2)) if entries else []
    if not entries:
        return
    sets = {e["manager"]: e["fieldsV1"] for e in after}
    assert all(fs.from_fields_v1(fields) == fields for fields in sets.values())
    before, now = leaves(old) if old else {}, leaves(new) if new else {}
    for path, value in now.items():
        if value in (None, {}) and any(p[: len(path)] == path != p for p in before):
            continue  # a map that is emptied stays with its owner
        if path in before and before[path] == value:
            assert fs.has_path(sets.get("first", {}), path)
            assert not fs.has_path(sets.get("second", {}), path)
        else:
            assert fs.has_path(sets.get("second", {}), path)
            assert not fs.has_path(sets.get("first", {}), path)
    for path in before.keys() - now.keys():
        inside = any(p[: len(path)] == path for p in now)
        assert inside or not any(fs.has_path(s, path) for s in sets.values())


def test_fields_are_written_in_order() -> None:
    """Clients compare protobuf's bytes of the fields with the sorted keys of JSON."""
    live = write(None, cm({"b": "1", "a": "1"}, labels={"z": "1", "a": "2", "m": "3"}), "m", 1)
    fields = owners(write(live, cm({"b": "2", "0": "1"}, labels={"z": "1"}), "m", 2))["m"]
    assert list(fields) == ["f:data", "f:metadata"]
    assert list(fields["f:data"]) == [".", "f:0", "f:b"]
    assert list(owners(live)["m"]["f:metadata"]["f:labels"]) == [".", "f:a", "f:m", "f:z"]
