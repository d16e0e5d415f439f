from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from transom.machinery import apply, schema
from transom.machinery import fieldset as fs
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK
from transom.machinery.managedfields import on_update
from transom.machinery.normalise import normalise_value
from transom.machinery.typed import DEDUCED, TypeNode, type_from_openapi
from transom.machinery.typedvalue import field_set_of

CONFIGMAP = schema.lookup_schema_type(GVK("", "v1", "ConfigMap"))
DEPLOYMENT = schema.lookup_schema_type(GVK("apps", "v1", "Deployment"))
assert CONFIGMAP is not None
assert DEPLOYMENT is not None
BOLT = type_from_openapi(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "set": {
                        "type": "array",
                        "x-kubernetes-list-type": "set",
                        "items": {"type": "string"},
                    },
                    "plain": {"type": "array", "items": {"type": "integer"}},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "whole": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": {"type": "string"},
                    },
                    "map": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["k"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "k": {"type": "string"},
                                "v": {"type": "integer"},
                                "w": {"type": "integer"},
                            },
                        },
                    },
                },
            }
        },
    }
)


def t(seconds: int) -> str:
    return f"2021-01-01T00:00:{seconds % 60:02}Z"


def cm(data: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **meta}}
    return {**body, "data": data} if data is not None else body


def ssa(
    live: Any,
    patch: Any,
    manager: str = "m",
    force: bool = False,
    at: int = 1,
    kind: Any = CONFIGMAP,
) -> Any:
    version = "v1" if kind is not DEPLOYMENT else "apps/v1"
    out = apply.server_side_apply(
        live,
        patch,
        kind,
        manager,
        version,
        force,
        t(at),
        normalise=None if isinstance(kind, TypeNode) else lambda o: normalise_value(kind, o),
    )
    return {**out, "metadata": {**out["metadata"], "uid": "u"}}


def owners(obj: Any) -> dict[str, Any]:
    return {
        f"{e['manager']}/{e['operation']}": e["fieldsV1"]
        for e in obj["metadata"].get("managedFields", [])
    }


def updated(live: Any, new: Any, manager: str, at: int = 5) -> Any:
    new = normalise_value(CONFIGMAP, new)
    entries = on_update(live, new, CONFIGMAP, manager, "v1", t(at))
    return {**new, "metadata": {**new["metadata"], "managedFields": entries, "uid": "u"}}


@pytest.mark.parametrize(
    ("patch", "code", "text"),
    [
        (
            {"metadata": {"name": "c"}},
            400,
            "Incorrect version specified in apply patch. Specified patch version: , expected: v1",
        ),
        (cm(managedFields=[]), 400, "metadata.managedFields must be nil"),
        (
            {"apiVersion": "v1", "kind": "Nope"},
            500,
            "failed to create typed patch object: no corresponding type for /v1, Kind=Nope",
        ),
        (
            {**cm(), "nope": 1},
            500,
            "failed to create typed patch object: .nope: field not declared in schema",
        ),
        (
            cm({"a": 1}),
            500,  # type: ignore[dict-item]
            (
                "failed to create typed patch object: .data.a: expected string, got "
                "&value.valueUnstructured{Value:1}"
            ),
        ),
    ],
)
def test_refused(patch: Any, code: int, text: str) -> None:
    with pytest.raises(ApiError) as e:
        ssa(None, patch)
    assert (e.value.code, e.value.message) == (code, text)


def test_a_value_that_only_decoding_refuses() -> None:
    service = schema.lookup_schema_type(GVK("", "v1", "Service"))
    patch = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 1, "targetPort": {}}]},
    }

    def decode(obj: Any) -> Any:
        raise ApiError(400, "BadRequest", "?")

    assert service is not None
    with pytest.raises(ApiError) as e:
        apply.server_side_apply(None, patch, service, "m", "v1", False, t(1), normalise=decode)
    assert (e.value.code, e.value.message) == (
        500,
        "failed to convert new object to proper version: unable to convert unstructured "
        "object to /v1, "
        "Kind=Service: json: cannot unmarshal object into Go value of type int32",
    )


def test_conflicts_name_all_managers() -> None:
    live = ssa(None, cm({"a": "1", "b": "1"}), "one")
    live = updated(live, cm({"a": "1", "b": "2", "c": "1"}), "two")
    with pytest.raises(ApiError) as e:
        ssa(live, cm({"a": "9", "b": "9", "c": "9"}), "three")
    assert (e.value.code, e.value.reason) == (409, "Conflict")
    assert e.value.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n'
        'conflicts with "two" using v1:\n- .data.b\n- .data.c'
    )
    assert e.value.details is not None
    assert e.value.details["causes"][1] == {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "two" using v1',
        "field": ".data.b",
    }
    forced = ssa(live, cm({"a": "9", "b": "9", "c": "9"}), "three", True)
    assert owners(forced) == {"three/Apply": {"f:data": {"f:a": {}, "f:b": {}, "f:c": {}}}}


def test_the_same_manager_by_update_is_another_manager() -> None:
    live = updated(None, cm({"a": "1"}), "m")
    with pytest.raises(ApiError, match=r'conflict with "m" using v1: \.data\.a'):
        ssa(live, cm({"a": "2"}), "m")


def test_fields_without_owner_are_removed() -> None:
    live = ssa(None, cm({"a": "1", "b": "1"}, labels={"x": "1"}), "one")
    live = ssa(live, cm({"b": "1"}), "two")
    live = ssa(live, cm(), "one", at=9)
    assert live["data"] == {"b": "1"}
    assert "labels" not in live["metadata"]
    assert owners(live) == {"two/Apply": {"f:data": {"f:b": {}}}}


def test_objects_without_owners_belong_to_the_time_before() -> None:
    live = {**normalise_value(CONFIGMAP, cm({"a": "1"})), "metadata": {"name": "c", "uid": "u"}}
    live = ssa(live, cm({"a": "1"}))
    assert owners(live) == {
        "m/Apply": {"f:data": {"f:a": {}}},
        "before-first-apply/Update": {"f:data": {".": {}, "f:a": {}}},
    }
    with pytest.raises(ApiError, match="before-first-apply"):
        ssa(live, cm({"a": "2"}))


def client_side(data: dict[str, str], applied: dict[str, str]) -> Any:
    note = {apply.LAST_APPLIED: json.dumps(cm(applied))}
    return updated(None, cm(data, annotations=note), "kubectl-client-side-apply")


def test_kubectl_takes_over_from_client_side_apply() -> None:
    live = client_side({"a": "1", "b": "1"}, {"a": "1", "b": "1"})
    out = ssa(live, cm({"a": "2", "b": "1"}), "kubectl")
    assert out["data"] == {"a": "2", "b": "1"}
    kept = json.loads(out["metadata"]["annotations"][apply.LAST_APPLIED])
    assert kept == cm({"a": "2", "b": "1"})
    assert out["metadata"]["annotations"][apply.LAST_APPLIED].endswith("}\n")
    with pytest.raises(ApiError, match="Apply failed with 1 conflict"):
        ssa(live, cm({"a": "2"}), "somebody")


def test_kubectl_does_not_take_what_changed_since() -> None:
    live = client_side({"a": "changed", "b": "1"}, {"a": "1", "b": "1"})
    with pytest.raises(ApiError, match=r"1 conflict: .*: \.data\.a"):
        ssa(live, cm({"a": "2", "b": "2"}), "kubectl")


def test_an_annotation_that_grows_too_large_goes() -> None:
    live = client_side({"a": "1"}, {"a": "1"})
    out = ssa(live, cm({"a": "1", "b": "x" * apply.MAX_ANNOTATION_BYTES}), "kubectl")
    assert apply.LAST_APPLIED not in out["metadata"].get("annotations", {})


def test_a_list_element_is_kept_while_a_manager_owns_it() -> None:
    def deployment(*containers: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"template": {"spec": {"containers": list(containers)}}},
        }

    def names(obj: Any) -> list[str]:
        return [c["name"] for c in obj["spec"]["template"]["spec"]["containers"]]

    live = ssa(None, deployment({"name": "a", "image": "1"}), "one", kind=DEPLOYMENT)
    live = ssa(
        live,
        deployment({"name": "b", "image": "1"}, {"name": "a", "tty": True}),
        "two",
        kind=DEPLOYMENT,
    )
    assert names(live) == ["a", "b"]
    live = ssa(live, deployment({"name": "c"}), "one", kind=DEPLOYMENT)
    assert names(live) == ["a", "b", "c"]
    assert "image" not in live["spec"]["template"]["spec"]["containers"][0]
    live = ssa(live, deployment({"name": "b"}), "two", kind=DEPLOYMENT)
    assert names(live) == ["b", "c"]


def test_a_manager_that_applies_in_another_version() -> None:
    """`v0` calls `data` `stuff`; what was applied there is pruned here."""

    def convert(obj: dict[str, Any], version: str) -> dict[str, Any] | None:
        if version not in ("v0", "v1"):
            return None
        was, now = ("data", "stuff") if version == "v0" else ("stuff", "data")
        out = {k: v for k, v in obj.items() if k != was}
        return {**out, "apiVersion": version, **({now: obj[was]} if was in obj else {})}

    def run(live: Any, patch: Any, version: str, manager: str) -> Any:
        return apply.server_side_apply(live, patch, DEDUCED, manager, version, False, t(1), convert)

    v0 = run(
        None,
        {"apiVersion": "v0", "kind": "K", "metadata": {"name": "k"}, "stuff": {"a": 1, "b": 1}},
        "v0",
        "one",
    )
    v1 = convert(v0, "v1")
    assert v1 is not None
    with pytest.raises(ApiError, match=r"conflict with \"one\": .stuff.a"):
        run(
            v1,
            {"apiVersion": "v1", "kind": "K", "metadata": {"name": "k"}, "data": {"a": 2}},
            "v1",
            "two",
        )
    out = run(
        v1,
        {"apiVersion": "v1", "kind": "K", "metadata": {"name": "k"}, "data": {"a": 1}},
        "v1",
        "one",
    )
    assert out["data"] == {"a": 1}
    assert [(e["apiVersion"], e["fieldsV1"]) for e in out["metadata"]["managedFields"]] == [
        ("v1", {"f:data": {".": {}, "f:a": {}}})
    ]


@pytest.mark.parametrize(
    ("raw", "want"), [(b"a: b\n", {"a": "b"}), (b'{"a": 1}', {"a": 1}), (b"", {})]
)
def test_reads_yaml_and_json(raw: bytes, want: Any) -> None:
    assert apply.parse_config(raw) == want


def test_bad_yaml() -> None:
    with pytest.raises(
        ApiError, match="error decoding YAML: error converting YAML to JSON: yaml: line 1: "
    ):
        apply.parse_config(b"a: [b")
    with pytest.raises(ApiError, match="json: cannot unmarshal array into Go value"):
        apply.parse_config(b"- a")


# Laws

small = st.integers(0, 2)
elements = st.lists(st.sampled_from("xyz"), unique=True, min_size=1, max_size=3).flatmap(
    lambda ks: st.tuples(
        *(st.fixed_dictionaries({"k": st.just(k)}, optional={"v": small, "w": small}) for k in ks)
    ).map(list)
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "n": small,
        "set": st.lists(st.sampled_from("pqr"), unique=True, min_size=1, max_size=3),
        "plain": st.lists(small, min_size=1, max_size=2),
        "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from("01"), max_size=2),
        "whole": st.dictionaries(
            st.sampled_from("ab"), st.sampled_from("01"), min_size=1, max_size=2
        ),
        "map": elements,
    },
).map(lambda spec: {"apiVersion": "v1", "kind": "Bolt", "metadata": {"name": "b"}, "spec": spec})


def at_path(obj: Any, path: fs.Path) -> list[Any]:
    """What stands at a path of a bolt: one value, or none."""
    for e in path:
        if e[0] == "f":
            if not isinstance(obj, dict) or e[2:] not in obj:
                return []
            obj = obj[e[2:]]
        else:
            want = json.loads(e[2:])
            found = [
                i
                for i in obj or []
                if i == want or (isinstance(i, dict) and want == {"k": i.get("k")})
            ]
            if not found:
                return []
            obj = found[0]
    return [obj]


def claims(config: Any) -> set[fs.Path]:
    return {p for p in fs.set_paths(field_set_of(config, BOLT)) if p[0] == "f:spec" and len(p) > 1}


def is_leaf(fields: fs.FieldSet, path: fs.Path) -> bool:
    for e in path:
        fields = fields[e]
    return not fields


@settings(max_examples=60)
@given(configs, configs)
def test_applying_again_changes_nothing(first: Any, second: Any) -> None:
    live = ssa(None, first, "one", kind=BOLT)
    live = ssa(live, second, "two", True, kind=BOLT)
    before = copy.deepcopy((live, second))
    assert ssa(live, second, "two", at=30, kind=BOLT) == live
    assert (live, second) == before


@settings(max_examples=60)
@given(configs, configs)
def test_a_forced_apply_wins_and_owns(first: Any, second: Any) -> None:
    live = ssa(ssa(None, first, "one", kind=BOLT), second, "two", True, kind=BOLT)
    mine = owners(live).get("two/Apply", {})
    applied = field_set_of(second, BOLT)
    for path in claims(second):
        assert fs.has_path(mine, path)
        value = at_path(second, path)
        # an empty map asks for nothing but to be there
        if is_leaf(applied, path) and value != [{}]:
            assert at_path(live, path) == value


@settings(max_examples=60)
@given(configs, configs)
def test_a_conflict_is_another_managers_field_with_another_value(first: Any, second: Any) -> None:
    live = ssa(None, first, "one", kind=BOLT)
    differing = {
        p
        for p in claims(first) & claims(second)
        if is_leaf(field_set_of(first, BOLT), p) and at_path(first, p) != at_path(second, p)
    }
    try:
        ssa(live, second, "two", kind=BOLT)
    except ApiError as e:
        assert e.details is not None
        assert {c["field"] for c in e.details["causes"]} == {
            fs.field_path_text(p) for p in differing
        }
    else:
        assert not differing


@settings(max_examples=100)
@given(configs, configs, configs)
def test_omitted_fields_are_removed_unless_owned_by_another_manager(
    first: Any, other: Any, second: Any
) -> None:
    live = ssa(None, first, "one", kind=BOLT)
    live = ssa(live, other, "two", True, kind=BOLT)
    former = owners(live).get("one/Apply", {})
    try:
        after = ssa(live, second, "one", kind=BOLT)
    except ApiError:
        assume(False)
    others = owners(after).get("two/Apply", {})
    for path in claims(second):
        assert at_path(after, path)
    for path in set(fs.set_paths(former)) - claims(second):
        if len(path) < 2 or any(p[: len(path)] == path for p in claims(second)):
            continue
        owned = any(p[: len(path)] == path for p in fs.set_paths(others))
        assert bool(at_path(after, path)) == owned, path


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abc"), configs), min_size=1, max_size=5))
def test_owners_own_what_exists(steps: list[tuple[str, Any]]) -> None:
    live = None
    for manager, config in steps:
        live = ssa(live, config, manager, True, kind=BOLT)
    for fields in owners(live).values():
        assert fs.from_fields_v1(json.loads(json.dumps(fields))) == fields
        for path in fs.set_paths(fields):
            assert at_path(live, path), path
