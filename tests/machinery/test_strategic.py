from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import schema, strategic
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK
from transom.machinery.releases import parse_release
from transom.machinery.strategic import strategic_merge

POD = schema.lookup_schema_type(GVK("", "v1", "Pod"))
DEPLOYMENT = schema.lookup_schema_type(GVK("apps", "v1", "Deployment"))
assert POD is not None
assert DEPLOYMENT is not None


def containers(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": n, "image": f"{n}:1"} for n in names]}}


def names(pod: dict[str, Any]) -> str:
    return "".join(c["name"] for c in pod["spec"]["containers"])


@pytest.mark.parametrize(
    ("live", "patch", "want"),
    [
        ("ab", [{"name": "z"}], "zab"),
        ("abc", [{"name": "b", "image": "n"}], "abc"),
        ("abc", [{"name": "c"}, {"name": "a"}], "bca"),
        ("abc", [{"name": "a", "$patch": "delete"}], "bc"),
        ("abc", [{"name": "a", "$patch": "delete"}, {"name": "n"}], "nbc"),
        ("abc", [{"$patch": "replace"}, {"name": "n"}], "n"),
        ("abc", [{"name": "n"}, {"$patch": "replace"}], "n"),
    ],
)
def test_order_of_merged_elements(live: str, patch: list[Any], want: str) -> None:
    assert names(strategic_merge(containers(*live), {"spec": {"containers": patch}}, POD)) == want


@pytest.mark.parametrize(
    ("live", "order", "patch", "want"),
    [
        ("abc", "cab", None, "cab"),
        ("abc", "ca", None, "bca"),
        ("ab", "nab", ["n"], "nab"),
        ("ab", "bna", ["n"], "bna"),
        ("", "ba", ["b", "a"], "ba"),
    ],
)
def test_set_element_order(live: str, order: str, patch: list[str] | None, want: str) -> None:
    spec: dict[str, Any] = {"$setElementOrder/containers": [{"name": n} for n in order]}
    if patch is not None:
        spec["containers"] = [{"name": n} for n in patch]
    assert names(strategic_merge(containers(*live), {"spec": spec}, POD)) == want


PLAIN = st.builds(
    lambda name, image: {"name": name, "image": image},
    st.sampled_from("abc"),
    st.sampled_from(["x", None]),
)
ODD = st.sampled_from(
    [
        {},
        "a",
        {"name": 1},
        {"name": "a", "$patch": "delete"},
        {"$patch": "replace"},
        {"name": ["a"]},
    ]
)


@st.composite
def ordered_patches(draw: st.DrawFn) -> tuple[list[str], dict[str, Any]]:
    live = draw(st.lists(st.sampled_from("abc"), unique=draw(st.booleans())))
    patch = draw(st.lists(PLAIN, max_size=3)) + draw(st.lists(ODD, max_size=1))
    named = sorted(
        {
            *live,
            *(p["name"] for p in patch if isinstance(p, dict) and isinstance(p.get("name"), str)),
        }
    )
    order: list[Any] = [{"name": n} for n in draw(st.permutations(named))] + draw(
        st.lists(ODD, max_size=1)
    )
    return live, {"$setElementOrder/containers": order, "containers": patch}


@given(ordered_patches())
def test_lists_with_an_order_are_merged_like_others(
    case: tuple[list[str], dict[str, Any]],
) -> None:
    """The short way of merging gives what the long way gives, refusals as well."""
    live, spec = case

    def outcome() -> Any:
        try:
            return strategic_merge(containers(*live), {"spec": copy.deepcopy(spec)}, POD)
        except ApiError as problem:
            return problem.code, problem.message

    short = outcome()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(strategic, "_merge_whole", lambda *_: None)
        assert outcome() == short


@pytest.mark.parametrize(
    ("live", "patch", "want"),
    [
        (["a"], {"finalizers": ["b", "a"]}, ["b", "a"]),
        (["a", "b"], {"finalizers": ["c"]}, ["c", "a", "b"]),
        (["a", "b"], {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}, ["b"]),
        (["a", "b"], {"$setElementOrder/finalizers": ["b", "a"]}, ["b", "a"]),
        ([], {"$deleteFromPrimitiveList/finalizers": ["a"]}, ["a"]),
    ],
)
def test_lists_of_scalars(live: list[str], patch: dict[str, Any], want: list[str]) -> None:
    meta = {"finalizers": live} if live else {}
    assert (
        strategic_merge({"metadata": meta}, {"metadata": patch}, POD)["metadata"]["finalizers"]
        == want
    )


@pytest.mark.parametrize(
    ("live", "patch", "want"),
    [
        ({"type": "a", "rollingUpdate": {}}, {"$retainKeys": ["type"], "type": "b"}, {"type": "b"}),
        ({"type": "x"}, {"type": None, "nope": None}, {}),
        ({"type": "x"}, {"$patch": "replace", "a": 1}, {"a": 1}),
        ({"type": "x"}, {"$patch": "delete"}, {}),
        ({"type": "x"}, [1], [1]),
    ],
)
def test_maps(live: Any, patch: Any, want: Any) -> None:
    assert strategic_merge({"spec": {"strategy": live}}, {"spec": {"strategy": patch}}, DEPLOYMENT)[
        "spec"
    ] == {"strategy": want}


@pytest.mark.parametrize(
    ("patch", "code", "text"),
    [
        (
            {"spec": {"containers": [{"image": "q"}]}},
            500,
            "map: map[image:q] does not contain declared merge key: name",
        ),
        (
            {"spec": {"containers": [{"name": "a", "$patch": "explode"}]}},
            500,
            "unknown patch type: explode in map: map[$patch:explode name:a]",
        ),
        ({"spec": {"$patch": "merge"}}, 500, "unknown patch type: merge in map: map[$patch:merge]"),
        (
            {"spec": {"containers": [{"$patch": "merge"}]}},
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            {"spec": {"containers": ["x"]}},
            500,
            "list element types are not identical: [[map[image:a:1 name:a]] [x]]",
        ),
        (
            {"spec": {"$retainKeys": ["x"], "hostname": "h"}},
            400,
            "invalid patch format of retainKeys",
        ),
        ({"spec": {"$retainKeys": "x"}}, 400, "invalid patch format of retainKeys"),
        (
            {"spec": {"$setElementOrder/containers": {}}},
            500,
            "expected a []interface {}, but received a map[string]interface {}",
        ),
        ({"spec": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
        ({"spec": {"$deleteFromPrimitiveList": []}}, 400, "invalid patch format of primitive list"),
        (
            {"spec": {"$setElementOrder/nope": [1]}},
            500,
            'unable to find api field in struct PodSpec for the json field "nope"',
        ),
        (
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "b"}],
                    "containers": [{"name": "a"}],
                }
            },
            500,
            (
                "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder "
                "list:\n[map[name:b]]\n"
            ),
        ),
    ],
)
def test_errors(patch: dict[str, Any], code: int, text: str) -> None:
    with pytest.raises(ApiError) as e:
        strategic_merge(containers("a"), patch, POD)
    assert (e.value.code, e.value.message) == (code, text)


env = st.lists(st.sampled_from("ABCD"), unique=True, max_size=4).flatmap(
    lambda ns: st.tuples(
        *(
            st.fixed_dictionaries(
                {"name": st.just(n)}, optional={"value": st.text("xy", max_size=1)}
            )
            for n in ns
        )
    ).map(list)
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "hostname": st.text("h", max_size=2),
        "nodeSelector": st.dictionaries(st.sampled_from("ab"), st.text("v", max_size=1)),
        "tolerations": st.lists(st.fixed_dictionaries({"key": st.sampled_from("ab")}), max_size=2),
        "containers": env,
    },
)


@given(specs, specs)
def test_merging_again_changes_nothing_and_inputs_stay(
    live: dict[str, Any], patch: dict[str, Any]
) -> None:
    doc, change = {"spec": live}, {"spec": patch}
    before = copy.deepcopy((doc, change))
    once = strategic_merge(doc, change, POD)
    assert strategic_merge(once, change, POD) == once
    assert (doc, change) == before
    merged = {c["name"]: c for c in once["spec"].get("containers", [])}
    for item in patch.get("containers", []):
        assert merged[item["name"]].items() >= item.items()
    assert set(merged) == {
        c["name"] for c in live.get("containers", []) + patch.get("containers", [])
    }


@given(env, env)
def test_a_deleted_element_is_gone_and_nothing_else(
    live: list[dict[str, Any]], gone: list[dict[str, Any]]
) -> None:
    patch = [{"name": c["name"], "$patch": "delete"} for c in gone]
    out = strategic_merge({"spec": {"containers": live}}, {"spec": {"containers": patch}}, POD)
    assert out["spec"]["containers"] == [
        c for c in live if c["name"] not in {g["name"] for g in gone}
    ]


@pytest.mark.parametrize(
    ("release", "requests"),
    [("1.20", {"cpu": None}), ("1.23", {"cpu": None}), ("1.24", {}), ("1.36", {})],
)
def test_nulls_of_new_maps(release: str, requests: dict[str, Any]) -> None:
    pod = schema.schema_table(parse_release(release)).lookup(GVK("", "v1", "Pod"))
    assert isinstance(pod, schema.SchemaType)
    change = {"name": "a", "resources": {"requests": {"cpu": None}}}
    merged = strategic_merge(containers("a", "b"), {"spec": {"containers": [change]}}, pod)
    assert merged["spec"]["containers"][0]["resources"]["requests"] == requests
