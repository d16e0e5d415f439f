"""Selectors: grammar, matching, printed forms, and the error texts a server answers."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import field_selectors, selectors
from transom.machinery.field_selectors import convert_fields, parse_fields
from transom.machinery.kinds import BY_KEY, GVK, Kind
from transom.machinery.selectors import SelectorError, from_object, parse_labels

LABELS = {"tier": "web", "env": "prod", "g": "5", "empty": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("tier=web", True),
        ("tier==web", True),
        ("tier!=web", False),
        ("tier = web , env", True),
        ("tier in (web,db)", True),
        ("tier notin (web)", False),
        ("none notin (web)", True),
        ("none!=x", True),
        ("env", True),
        ("!env", False),
        ("!none", True),
        ("none", False),
        ("g>4", True),
        ("g>5", False),
        ("g<6", True),
        ("tier>1", False),
        ("none<1", False),
        ("empty=", True),
        ("empty in ()", True),
        ("none=", False),
        ("tier in (,web)", True),
        ("in", False),
        ("in in (in,notin)", False),
        ("tier=web,env=dev", False),
        ("a.example/x notin (b)", True),
    ],
)
def test_label_matching(text: str, expected: bool) -> None:
    assert parse_labels(text).matches(LABELS) is expected


KEY_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        (
            "in (a)",
            "unable to parse requirement: found '(', expected: '=', '!=', '==', 'in', notin'",
        ),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("-x=1", f'unable to parse requirement: invalid label key "-x": {KEY_TEXT}'),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a,", "found '', expected: identifier after ','"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        (
            "g>x",
            "unable to parse requirement: for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
    ],
)
def test_label_errors(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_labels(text)
    assert str(caught.value) == message


def test_label_value_error() -> None:
    with pytest.raises(SelectorError) as caught:
        parse_labels("t=-bad")
    assert str(caught.value).startswith(
        'unable to parse requirement: invalid label value: "-bad": at key: "t": a valid '
        "label must be an empty string"
    )


def test_objects() -> None:
    selector = from_object(
        {
            "matchLabels": {"b": "1", "a": "2"},
            "matchExpressions": [
                {"key": "x", "operator": "In", "values": ["z", "y"]},
                {"key": "c", "operator": "DoesNotExist"},
                {"key": "d", "operator": "Exists"},
                {"key": "e", "operator": "NotIn", "values": ["q"]},
            ],
        }
    )
    assert str(selector) == "a=2,b=1,!c,d,e notin (q),x in (y,z)"
    assert selector.matches({"a": "2", "b": "1", "d": "", "x": "y"})
    assert not selector.matches({"a": "2", "b": "1", "x": "y"})
    assert selector.exact("a") == "2" and selector.exact("x") is None


def test_none_selects_nothing_and_empty_selects_everything() -> None:
    assert not from_object(None).matches({}) and not from_object(None).empty
    assert from_object({}).matches(None) and from_object({}).empty
    assert selectors.from_map({"a": "b"}).matches({"a": "b", "c": "d"}) and selectors.from_map(
        None
    ).matches({})


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"key": "a", "operator": "Nope"}, '"Nope" is not a valid pod selector operator'),
        ({"key": "a", "operator": "In"}, "for 'in', 'notin' operators, values set can't be empty"),
        (
            {"key": "a", "operator": "Exists", "values": ["b"]},
            "values set must be empty for exists and does not exist",
        ),
    ],
)
def test_object_errors(expression: dict[str, Any], message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        from_object({"matchExpressions": [expression]})
    assert str(caught.value) == message


WORD = st.text("abcXYZ019", min_size=1, max_size=4)


@st.composite
def requirement(draw: st.DrawFn) -> str:
    key, values = draw(WORD), draw(st.lists(WORD, min_size=1, max_size=3))
    form = draw(
        st.sampled_from(["{k}", "!{k}", "{k}={v}", "{k}!={v}", "{k} in ({vs})", "{k} notin ({vs})"])
    )
    return form.format(k=key, v=values[0], vs=",".join(values))


@given(st.lists(requirement(), max_size=4), st.dictionaries(WORD, WORD))
def test_printed_selectors_mean_the_same(parts: list[str], labels: dict[str, str]) -> None:
    selector = parse_labels(",".join(parts))
    again = parse_labels(str(selector))
    assert again == selector
    assert (
        again.matches(labels)
        == selector.matches(labels)
        == all(parse_labels(p).matches(labels) for p in parts)
    )


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("b!=c,a=b", "a=b,b!=c"),
        ("a==b", "a=b"),
        ("a=", "a="),
        (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
        (",,a=b,", "a=b"),
    ],
)
def test_field_text(text: str, printed: str) -> None:
    assert str(parse_fields(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "invalid selector: 'nonsense'; can't understand 'nonsense'"),
        ("a=b,nonsense", "invalid selector: 'a=b,nonsense'; can't understand 'nonsense'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_field_errors(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_fields(text)
    assert str(caught.value) == message


POD, EVENT = BY_KEY["/Pod"], BY_KEY["/Event"]
WIDGET = Kind("example.com", "Widget", "widgets", custom=True)


@pytest.mark.parametrize(
    ("kind", "gvk", "text", "converted"),
    [
        (POD, POD.gvk(), "spec.host=n,status.podIPs=", "spec.nodeName=n,status.podIPs="),
        (
            EVENT,
            GVK("events.k8s.io", "v1", "Event"),
            "regarding.kind=Pod",
            "involvedObject.kind=Pod",
        ),
        (EVENT, EVENT.gvk(), "source=kubelet", "source=kubelet"),
        (BY_KEY["/ConfigMap"], GVK("", "v1", "ConfigMap"), "metadata.name=a", "metadata.name=a"),
        (
            BY_KEY["batch/CronJob"],
            GVK("batch", "v1beta1", "CronJob"),
            "status.successful=1",
            "status.successful=1",
        ),
        (WIDGET, WIDGET.gvk("v1"), "metadata.namespace=a", "metadata.namespace=a"),
    ],
)
def test_field_labels(kind: Kind, gvk: GVK, text: str, converted: str) -> None:
    assert str(convert_fields(parse_fields(text), kind, gvk)) == converted


@pytest.mark.parametrize(
    ("kind", "version", "text", "message"),
    [
        (POD, "v1", "spec.hostNetwork=true", "field label not supported: spec.hostNetwork"),
        (
            BY_KEY["/Node"],
            "v1",
            "metadata.namespace=x",
            "field label not supported: metadata.namespace",
        ),
        (
            BY_KEY["apps/ReplicaSet"],
            "v1",
            "status.replicas=0",
            (
                '"status.replicas" is not a known field selector: only "metadata.name", '
                '"metadata.namespace"'
            ),
        ),
        (
            BY_KEY["batch/Job"],
            "v1",
            "spec.x=1",
            'field label "spec.x" not supported for batchv1.Job',
        ),
        (
            BY_KEY["batch/CronJob"],
            "v1beta1",
            "spec.x=1",
            'field label "spec.x" not supported for "CronJob"',
        ),
        (WIDGET, "v1", "spec.x=1", "field label not supported: spec.x"),
    ],
)
def test_unsupported_field_labels(kind: Kind, version: str, text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        convert_fields(parse_fields(text), kind, kind.gvk(version))
    assert str(caught.value) == message


def test_field_values_and_both_ways_of_matching_agree() -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": "a"},
        "status": {"phase": "Running"},
    }
    values = field_selectors.field_values(POD, pod)
    assert (values["metadata.name"], values["spec.nodeName"], values["status.podIP"]) == (
        "p",
        "a",
        "",
    )
    for text in (
        "spec.nodeName=a",
        "spec.nodeName!=a",
        "status.podIP=",
        "metadata.namespace=n,status.phase!=Pending",
    ):
        selector = parse_fields(text)
        assert selector.matches(values) is selector.matches_object(POD, pod)
    assert parse_fields("metadata.name=p,status.phase=Running").matches_object(POD, pod)
    assert not parse_fields("metadata.name=q").matches_object(POD, pod)
    assert parse_fields("a!=b,metadata.name=p").exact("metadata.name") == "p"


def test_field_values_of_kinds_with_their_own() -> None:
    assert (
        field_selectors.field_values(BY_KEY["/Node"], {"spec": {}})["spec.unschedulable"] == "false"
    )
    assert (
        field_selectors.field_values(BY_KEY["batch/Job"], {"status": {"succeeded": 2}})[
            "status.successful"
        ]
        == "2"
    )
    assert (
        field_selectors.field_values(BY_KEY["batch/Job"], {"status": {}})["status.successful"]
        == "0"
    )
    assert field_selectors.field_values(EVENT, {"reportingComponent": "s"})["source"] == "s"


_requirements = st.lists(
    st.builds(
        lambda key, operator, values: selectors.Requirement(
            key,
            operator,
            values
            if operator in ("in", "notin")
            else ()
            if operator in ("exists", "!")
            else values[:1],
        ),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["in", "notin", "exists", "!", "=", "==", "!=", "gt", "lt"]),
        st.lists(st.sampled_from(["", "1", "2", "3", "07", "x"]), min_size=1, max_size=3).map(
            tuple
        ),
    ),
    max_size=6,
)


@given(
    _requirements,
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["", "1", "2", "3", "07", "x"])
    ),
)
def test_joined_requirements_match_what_each_of_them_matches(
    requirements: list[selectors.Requirement], labels: dict[str, str]
) -> None:
    expected = all(requirement.matches(labels) for requirement in requirements)
    assert selectors._Index(requirements).matches(labels) is expected
    assert selectors.LabelSelector(requirements * 9).matches(labels) is expected


def test_long_selectors_are_not_kept() -> None:
    before = selectors._parse_labels.cache_info().currsize
    parse_labels(",".join(f"long{n}!=v" for n in range(3000)))
    assert selectors._parse_labels.cache_info().currsize == before


_fields = st.sampled_from(["metadata.name", "status.phase"])


@given(
    st.lists(st.tuples(_fields, st.booleans(), st.sampled_from("ab")), max_size=4),
    st.dictionaries(_fields, st.sampled_from(["", "a", "b"])),
)
def test_field_terms_by_field_match_what_each_of_them_matches(
    terms: list[Any], values: dict[str, str]
) -> None:
    selector = field_selectors.FieldSelector(field_selectors.FieldTerm(*term) for term in terms)
    assert selector.matches(values) is all(
        (values.get(f, "") == v) is equal for f, equal, v in terms
    )


_TERMS = (
    *("a", "b.c", "!a", "!", "a=b", "a==b", "a!=b", "a=", "a==", "a in (b)", "a notin (x,y)"),
    *("a>1", "a<-5", "a>", "a>x", "in", "notin", "a in", "-a", "a-", " a ", "a =b", "a= b"),
    *("a/b", "x.y/z=1", "", "a\0b", "é", "a" * 64, "a=" + "b" * 64, "a>99999999999999999999"),
    *("!a=b", "!!a", " ! a", "\ta", "a\n", "a=b c"),
)


def test_long_selectors_are_read_like_short_ones() -> None:
    """The simple requirements at the beginning of a long selector have a parser of their own."""
    many = ",".join(f"k{i}=v" for i in range(400))
    rng = random.Random(7)
    for _ in range(2000):
        text = ",".join(rng.choices(_TERMS, k=rng.randint(1, 4)))
        assert len(many) > selectors.LONGEST_CACHED_SELECTOR
        try:
            short: object = sorted(selectors.parse_labels(f"z,{text}").requirements)
        except SelectorError as problem:
            short = (str(problem), problem.newer)
        try:
            parsed = selectors.parse_labels(f"{many},z,{text}").requirements
            found: object = sorted(r for r in parsed if not r.key.startswith("k"))
        except SelectorError as problem:
            found = (str(problem), problem.newer)
        assert found == short, text
