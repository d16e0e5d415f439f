"""Kubernetes' protobuf: JSON survives a round trip, the bytes are those of Kubernetes, and invalid
bytes are rejected.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transom.machinery import codec, protobuf, schema
from transom.machinery.kinds import GVK, KINDS
from transom.machinery.normalise import normalise_value
from transom.machinery.protobuf import messages, reader, writer
from transom.machinery.releases import parse_release
from transom.machinery.releases.kinds import release_kinds
from transom.machinery.schema import SchemaTable, SchemaType, SchemaValue

CONFIG_MAP = GVK("", "v1", "ConfigMap")
POD = GVK("", "v1", "Pod")
STATUS = GVK("", "v1", "Status")
RELEASES = ("1.20", "1.32", "1.36")


def table_of(release: str) -> SchemaTable:
    return schema.schema_table(parse_release(release))


def served(release: str) -> list[GVK]:
    kinds = release_kinds(parse_release(release)) if release != "1.20" else KINDS
    return sorted(
        {
            GVK(group, version, kind.kind)
            for kind in kinds
            for group, versions in ((kind.group, kind.versions), *kind.also)
            for version in versions
        }
    )


SERVED = [
    pytest.param(release, gvk, id=f"{release}-{gvk.api_version}.{gvk.kind}")
    for release in RELEASES
    for gvk in served(release)
]


def back(gvk: GVK, raw: bytes, types: SchemaTable = schema.BASE) -> dict[str, Any]:
    return codec.decode_object(raw, codec.PROTOBUF, gvk, types=types).obj


# --- everything the schema allows ----------

_LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=5) | st.just("long" * 50),
    "bool": st.booleans(),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    "bytes": st.binary(min_size=1, max_size=9).map(lambda b: base64.b64encode(b).decode()),
    "time": st.sampled_from(
        ["2024-02-29T12:00:00Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:01Z"]
    ),
    "microtime": st.sampled_from(["2024-02-29T12:00:00.000001Z", "1969-12-31T23:59:59.999999Z"]),
    "quantity": st.sampled_from(["0", "500m", "1Gi", "12e6", "-3"]),
    "int-or-string": st.integers(-(1 << 31), (1 << 31) - 1) | st.sampled_from(["", "25%", "http"]),
    "raw": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
    "fields": st.just({"f:metadata": {"f:labels": {".": {}, "f:<a>": {}}}}),
    "json": st.sampled_from([0, "a", {"b": [1, None, 1.5]}, [], False]),
}


def values(value: SchemaValue, depth: int) -> st.SearchStrategy[Any]:
    item = value.item
    if value.kind == "struct":
        return objects(value.type, depth - 1)
    if value.kind == "list":
        assert item is not None
        return st.lists(values(item, depth), min_size=1, max_size=2)
    if value.kind == "map":
        assert item is not None
        return st.dictionaries(st.text(max_size=5), values(item, depth), min_size=1, max_size=2)
    if value.kind.startswith("schema-or"):
        of = objects(schema.get_schema_type(schema.JSON_SCHEMA_PROPS), depth - 1)
        others = {
            "array": st.lists(of, min_size=1, max_size=2),
            "bool": st.booleans(),
            "strings": st.lists(st.text(max_size=3), min_size=1, max_size=2),
        }
        return of | others[value.kind.rpartition("-")[2]]
    return _LEAVES[value.kind]


def objects(of: SchemaType, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    if depth <= 0:
        return st.just({})
    envelope = ("kind", "apiVersion") if "metadata" in of.properties else ()
    fields = [f for f in of.properties.values() if f.name not in envelope]

    @st.composite
    def some(draw: st.DrawFn) -> dict[str, Any]:
        chosen = (
            draw(st.lists(st.sampled_from(fields), unique_by=lambda f: f.name, max_size=6))
            if fields
            else []
        )
        return {f.name: draw(values(f.value, depth)) for f in chosen}

    return some()


@pytest.mark.parametrize(("release", "gvk"), SERVED)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_there_and_back(release: str, gvk: GVK, data: st.DataObject) -> None:
    types = table_of(release)
    of = types.lookup(gvk)
    assert of is not None
    obj = normalise_value(
        of, {**data.draw(objects(of, 7)), "kind": gvk.kind, "apiVersion": gvk.api_version}
    )
    assert back(gvk, protobuf.encode_protobuf(obj, gvk, types), types) == obj


@pytest.mark.parametrize("release", RELEASES)
def test_every_type_has_its_numbers(release: str) -> None:
    """Tables alone have no protobuf form; all others know how to read and write each of their
    fields.
    """
    types = table_of(release)
    without = {name for name in types.names() if not messages.is_known_message(name, types)}
    assert without == {
        f"meta/v1.Table{part}" for part in ("", "ColumnDefinition", "Row", "RowCondition")
    }
    for name in messages.message_names(types):
        rows = messages.message_fields(name, types)
        assert len({row.number for row in rows}) == len(rows)
        named = {row.name for row in rows if row.name}
        for row in rows:
            if not row.name:
                named |= set(row.value.type.properties)
        of = types.get(name.replace("meta/v1beta1.", "meta/v1."))
        assert {"kind", "apiVersion"} >= set(of.properties) - named
        assert {tag >> 3 for tag in reader.reader_of(name, types).ops} == {
            row.number for row in rows
        }
        assert len(writer.writer_of(name, types).steps) == len(rows)


def test_numbers_of_a_field_do_not_change_between_releases() -> None:
    newest = table_of("1.36")
    for name in messages.message_names():
        if name in newest:
            old, new = (
                {
                    row.name or row.go_name: row.number
                    for row in messages.message_fields(name, types)
                }
                for types in (schema.BASE, newest)
            )
            assert {k: new[k] for k in old if k in new} == {k: old[k] for k in old if k in new}


def test_fields_of_later_releases() -> None:
    """As client-go 0.36 sends a pod: PodSpec.hostnameOverride has number 41."""
    types = table_of("1.36")
    field = b"\xca\x02\x01h"
    raw = wrap(b"\x12" + bytes([len(field)]) + field, kind=b"Pod")
    assert back(POD, raw, types)["spec"]["hostnameOverride"] == "h"
    assert "hostnameOverride" not in back(POD, raw)["spec"]  # unknown to 1.20
    obj = normalise_value(
        types.lookup(POD), {"kind": "Pod", "apiVersion": "v1", "spec": {"hostnameOverride": "h"}}
    )
    assert field in protobuf.encode_protobuf(obj, POD, types)


# --- Kubernetes' own bytes ----------


def test_bytes_are_those_of_kubernetes() -> None:
    """As kubectl sends a config map: fields that are not pointers are present although they are
    empty.
    """
    meta = b"\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00"
    content = b"\x0a" + bytes([len(meta)]) + meta + b"\x12\x0a\x0a\x03key\x12\x03val"
    raw = (
        b"k8s\x00"
        b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"
        b"\x12" + bytes([len(content)]) + content + b"\x1a\x00\x22\x00"
    )
    obj = normalise_value(
        CONFIG_MAP,
        {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": "a"},
            "data": {"key": "val"},
        },
    )
    assert protobuf.encode_protobuf(obj, CONFIG_MAP) == raw
    assert back(CONFIG_MAP, raw) == obj


def test_watch_events_have_their_length_in_front() -> None:
    wrapped = protobuf.encode_protobuf({"status": "Failure", "code": 410}, STATUS)
    frame = protobuf.watch_frame("ERROR", wrapped)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4:11] == b"\x0a\x05ERROR"
    assert frame.endswith(wrapped)
    status = back(STATUS, wrapped)
    assert (status["status"], status["code"]) == ("Failure", 410)


def test_a_list_of_the_old_metadata_version_has_numbers_of_its_own() -> None:
    obj = {"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}}]}
    new, old = (
        protobuf.encode_protobuf(obj, GVK("meta.k8s.io", v, "PartialObjectMetadataList"))
        for v in ("v1", "v1beta1")
    )
    assert new.replace(b"/v1", b"") != old.replace(b"/v1beta1", b"")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x0a\x03\x0a\x01a", {"name": "a"}),
        (
            b"\x0a\x03\x0a\x01a\x0a\x03\x1a\x01n",
            {"name": "a", "namespace": "n"},
        ),  # a message in two parts is one
        (
            b"\x0a\x03\x0a\x01a\xfa\x01\x02\x08\x01\xf8\x01\x05\xf9\x0112345678\xfd\x011234",
            {"name": "a"},
        ),  # strangers
        (
            b"\x0a\x05\xfb\x01\x08\x01\xfc\x01\x0a\x03\x0a\x01a".replace(b"\x0a\x05", b"\x0a\x06"),
            {"name": "a"},
        ),  # a group
        (b"\x0a\x03\x0a\x01\xff", {"name": "\ufffd"}),
        (b"\x0a\x06\x0a\x81\x80\x80\x00a", {"name": "a"}),  # a length in more bytes than it needs
    ],
)
def test_unusual_but_fine(content: bytes, expected: dict[str, Any]) -> None:
    assert back(CONFIG_MAP, wrap(content))["metadata"] == {**expected, "creationTimestamp": None}


def test_numbers_come_packed_or_one_by_one() -> None:
    context = GVK("", "v1", "Pod")
    for ids in (b"\x20\x01\x20\x96\x01", b"\x22\x03\x01\x96\x01"):
        spec = b"\x72" + bytes([len(ids)]) + ids
        obj = back(context, wrap(b"\x12" + bytes([len(spec)]) + spec, kind=b"Pod"))
        assert obj["spec"]["securityContext"]["supplementalGroups"] == [1, 150]


# --- bytes that are none ----------


def wrap(content: bytes, kind: bytes = b"ConfigMap", version: bytes = b"v1") -> bytes:
    meta = b"\x0a" + bytes([len(version)]) + version + b"\x12" + bytes([len(kind)]) + kind
    return b"k8s\x00\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(content)]) + content


_HANDLED = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
_UNRECOGNISED = "the object provided is unrecognized (must be of type ConfigMap): "


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", _UNRECOGNISED + "empty data (<empty>)"),
        (
            b"{}",
            _UNRECOGNISED
            + "provided data does not appear to be a protobuf message, expected prefix [107 56 "
            "115 0] "
            "({})",
        ),
        (b"k8s\x00", _UNRECOGNISED + "empty body (6b387300)"),
        (b"k8s\x00\x0a\x05", _UNRECOGNISED + "unexpected EOF (6b3873000a05)"),
        (
            b"k8s\x00\x08\x01",
            _UNRECOGNISED + "proto: wrong wireType = 0 for field TypeMeta (6b3873000801)",
        ),
        (
            b"k8s\x00\x0c",
            _UNRECOGNISED + "proto: Unknown: wiretype end group for non-group (6b3873000c)",
        ),
        (wrap(b"\x0a"), _HANDLED + "unexpected EOF"),
        (wrap(b"\x0a\x05\x0a\x04a"), _HANDLED + "unexpected EOF"),
        (wrap(b"\x0a\x03\x0a\x04abcd"), _HANDLED + "unexpected EOF"),
        (wrap(b"\x08\x01"), _HANDLED + "proto: wrong wireType = 0 for field ObjectMeta"),
        (wrap(b"\x0a\x02\x08\x01"), _HANDLED + "proto: wrong wireType = 0 for field Name"),
        (wrap(b"\x0a\x01\x0c"), _HANDLED + "proto: ObjectMeta: wiretype end group for non-group"),
        (wrap(b"\x02\x00"), _HANDLED + "proto: ConfigMap: illegal tag 0 (wire type 2)"),
        (wrap(b"\x80" * 10 + b"\x01"), _HANDLED + "proto: integer overflow"),
        (
            wrap(b"\x0a" + b"\xff" * 9 + b"\x01"),
            _HANDLED + "proto: negative length found during unmarshaling",
        ),
        (wrap(b"\xfb\x01\x08\x01"), _HANDLED + "unexpected EOF"),
        (wrap(b"\xfe\x01\x08\x01"), _HANDLED + "proto: illegal wireType 6"),
        (
            wrap(b"", b"Pod"),
            'Pod in version "v1" cannot be handled as a ConfigMap: '
            "converting (v1.Pod) to (core.ConfigMap): unknown conversion",
        ),
        (
            wrap(b"\x08", b"Pod"),
            'Pod in version "v1" cannot be handled as a ConfigMap: '
            "proto: wrong wireType = 0 for field ObjectMeta",
        ),
        (
            wrap(b"", b"X"),
            'X in version "v1" cannot be handled as a ConfigMap: no kind "X" is registered '
            'for version "v1" '
            'in scheme "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"',
        ),
    ],
)
def test_refusals(raw: bytes, text: str) -> None:
    with pytest.raises(codec.DecodeError) as caught:
        codec.decode_object(raw, codec.PROTOBUF, CONFIG_MAP)
    assert (caught.value.code, caught.value.message) == (400, text)


def test_a_bad_quantity_is_refused_in_its_own_words() -> None:
    limits = b"\x0a\x0a\x0a\x03cpu\x12\x03\x0a\x01x"
    container = b"\x42" + bytes([len(limits)]) + limits
    spec = b"\x12" + bytes([len(container)]) + container
    with pytest.raises(codec.DecodeError, match="quantities must match the regular expression"):
        codec.decode_object(wrap(b"\x12" + bytes([len(spec)]) + spec, b"Pod"), codec.PROTOBUF, POD)


def test_kind_and_version_may_be_left_out() -> None:
    decoded = codec.decode_object(b"k8s\x00\x12\x05\x0a\x03\x0a\x01a", codec.PROTOBUF, CONFIG_MAP)
    assert (decoded.gvk, decoded.obj["metadata"]["name"]) == (CONFIG_MAP, "a")


def test_custom_kinds_have_no_such_form() -> None:
    widget = GVK("example.com", "v1", "Widget")
    assert not protobuf.is_protobuf_encodable(widget)
    with pytest.raises(
        codec.DecodeError, match="Object 'Kind' is missing in 'object has no kind field '"
    ):
        codec.decode_object(wrap(b"", b"Widget", b"example.com/v1"), codec.PROTOBUF, widget)


def test_options_of_any_group() -> None:
    options = GVK("", "v1", "DeleteOptions")
    for version in (b"v1", b"apps/v1", b""):
        raw = wrap(b"\x08\x00\x22\x0aForeground", b"DeleteOptions", version)
        assert (
            codec.decode_options(raw, codec.PROTOBUF, options)["propagationPolicy"] == "Foreground"
        )


def test_deep_nesting_is_refused() -> None:
    content = b""
    for _ in range(5000):
        content = b"\xe2\x01" + writer.varint(len(content)) + content  # JSONSchemaProps.not
    of = schema.get_schema_type(schema.JSON_SCHEMA_PROPS)
    with pytest.raises(protobuf.MalformedProtobuf, match="exceeded max depth"):
        protobuf.decode_protobuf(of, content, 0, len(content))


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
)
def test_no_bytes_do_harm(noise: bytes, changes: list[tuple[int, int]]) -> None:
    """Random bytes, and an honest pod with a few bytes changed, are read or refused, never anything
    else.
    """
    container = {
        "name": "c",
        "image": "i",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "1"}},
        "livenessProbe": {"httpGet": {"port": "http"}},
    }
    pod = normalise_value(
        POD,
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": "a", "labels": {"app": "x"}},
            "spec": {"containers": [container], "securityContext": {"runAsUser": 0}},
        },
    )
    damaged = bytearray(protobuf.encode_protobuf(pod, POD))
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    for raw in (b"k8s\x00" + noise, wrap(noise, b"Pod"), bytes(damaged)):
        try:
            codec.decode_object(raw, codec.PROTOBUF, POD)
        except codec.ApiError as e:
            assert e.code == 400
