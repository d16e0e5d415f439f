"""Decodes request bodies and encodes objects, with Kubernetes' error messages for invalid bodies.

`decode_object` reads JSON, YAML or protobuf, determines the kind, and returns the object in the
form of a Go round trip. The fast path is orjson and a generated function; only invalid bodies use
the modules with the error messages. YAML and protobuf are slow to load, so they are imported on
first use. This module does not depend on HTTP, except for media types, or on storage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import field
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from transom.kit.caching import text_cache
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.machinery import gojson, schema, scheme
from transom.machinery import normalise as roundtrip
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK
from transom.machinery.normalise import (
    NeedsText,
    RawFloat,
    TypeMismatch,
    mark_unknown_fields,
)
from transom.machinery.objects import MAX_DEPTH, TooDeep, check_depth
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.schema import SchemaTable, SchemaType

if TYPE_CHECKING:
    from transom.machinery import goyaml, jsoniter, protobuf, sigsjson, strictness
    from transom.machinery.protobuf import Envelope
else:
    goyaml = lazy_import("transom.machinery.goyaml")
    protobuf = lazy_import("transom.machinery.protobuf")
    sigsjson = lazy_import("transom.machinery.sigsjson")
    strictness = lazy_import("transom.machinery.strictness")
    jsoniter = lazy_import("transom.machinery.jsoniter")

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

_FIND_KIND = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string '
    r'"json:\"kind,omitempty\"" }'
)
_SUMMARY_BYTES = 30


@dataclass(slots=True)
class Decoded:
    obj: dict[str, Any]
    gvk: GVK
    # Unknown and duplicate fields, as messages in Kubernetes' order; only collected on request.
    problems: list[str] = field(default_factory=list)

    @property
    def unknown(self) -> list[str]:
        return [text for text in self.problems if text.startswith("unknown field ")]

    @property
    def duplicates(self) -> list[str]:
        return [text for text in self.problems if not text.startswith("unknown field ")]


class DecodeError(ApiError):
    """A body that cannot be decoded. `base` is the decoder's own message, for callers that respond
    with a code other than 400.
    """

    def __init__(self, message: str, base: str) -> None:
        super().__init__(400, "BadRequest", message)
        self.base = base


class OtherVersionError(ApiError):
    """A body of another version of the kind. Its unknown and duplicate fields are reported first."""

    def __init__(self, gvk: GVK, expected: GVK) -> None:
        super().__init__(
            400,
            "BadRequest",
            f"the API version in the data ({gvk.api_version}) does not match the expected API "
            f"version ({expected.api_version})",
        )
        self.gvk = gvk
        self.problems: list[str] = []


def decode_object(
    raw: bytes,
    media_type: str,
    expected: GVK,
    *,
    strict: bool = False,
    also: Collection[GVK] = (),
    types: SchemaTable = schema.BASE,
) -> Decoded:
    """The body as an object of the expected kind; raises DecodeError.

    With `strict`, unknown and duplicate fields are reported in `problems`. `also` are other
    accepted versions (an Eviction may be of policy/v1 or v1beta1). A kind without a built-in type
    is custom: its metadata is normalised, the rest is unchanged.
    """
    if media_type == PROTOBUF:
        return _from_protobuf(raw, expected, also, types)
    is_yaml = media_type == YAML
    value, gvk = _read(raw, is_yaml, expected)
    if gvk in also:
        expected = gvk
    of = types.lookup(expected)
    if of is None:
        obj = _custom(value, gvk, expected, raw, is_yaml, types)
    else:
        unique = strict and not is_yaml and strictness.has_no_duplicates(value, raw)
        if gvk != expected:
            try:
                _refuse(
                    gvk,
                    expected,
                    types,
                    lambda found: _typed(found, dict(value), gvk, expected, raw, is_yaml),
                )
            except OtherVersionError as problem:
                if strict:
                    problem.problems = _problems(types.lookup(gvk), raw, is_yaml)
                raise
        value["kind"], value["apiVersion"] = gvk.kind, gvk.api_version
        before = mark_unknown_fields()
        obj = _typed(of, value, gvk, expected, raw, is_yaml)
        if unique and mark_unknown_fields() == before + 1:
            strict = False
    return Decoded(obj, gvk, _problems(of, raw, is_yaml) if strict else [])


def decode_options(
    raw: bytes, media_type: str, expected: GVK, types: SchemaTable = schema.BASE
) -> dict[str, Any]:
    """The options in a body (of a DELETE), which may come in any group version. Kubernetes does not
    translate errors here: a 500 with the bare message.
    """
    is_yaml = media_type == YAML
    try:
        if media_type == PROTOBUF:
            envelope, gvk = _unwrap(raw, expected)
        else:
            value, gvk = _read(raw, is_yaml, expected)
        if gvk.kind != expected.kind:
            text = scheme.not_registered(gvk, "meta.k8s.io")
            raise _refusal(gvk, expected.kind, text)
        of = types.get(f"meta/v1.{expected.kind}")
        if media_type == PROTOBUF:
            return _content(of, envelope, gvk, expected, raw)
        return _typed(of, value, gvk, expected, raw, is_yaml)
    except DecodeError as e:
        raise ApiError(500, "", e.base) from None


def strict_error(decoded: Decoded, expected: GVK) -> DecodeError | None:
    """The error of `fieldValidation=Strict`, if there are any problems."""
    if not decoded.problems:
        return None
    return _refusal(
        decoded.gvk, expected.kind, "strict decoding error: " + ", ".join(decoded.problems)
    )


def normalise_object(of: SchemaType | GVK, obj: dict[str, Any]) -> dict[str, Any]:
    """The object in the form of a Go round trip, a new dict that may share parts with the input. A
    value of a wrong type raises DecodeError with the message for decoding the object's JSON.
    """
    try:
        return roundtrip.normalise_value(of, obj)
    except TypeMismatch:
        kind = of if isinstance(of, SchemaType) else schema.lookup_schema_type(of)
        assert kind is not None
        text = _type_error(kind, gojson.marshal(obj))
        raise DecodeError(text, text) from None


def normalise_object_meta(metadata: Any, types: SchemaTable = schema.BASE) -> dict[str, Any]:
    """The same for the metadata of a custom object, or of an object inside one."""
    return normalise_object(types.get(schema.OBJECT_META), metadata)


def encode_object(obj: Any) -> bytes:
    """The object as JSON, without the trailing newline."""
    return gojson.escape_html(orjson.dumps(obj))


def pretty_json(obj: Any) -> bytes:
    """Indented JSON: two spaces, no trailing newline."""
    return gojson.escape_html(orjson.dumps(obj, option=orjson.OPT_INDENT_2))


def to_yaml(obj: Any) -> str:
    return goyaml.dump_yaml(obj)


def from_yaml(raw: bytes) -> Any:
    """A YAML document as a JSON value; raises `goyaml.YamlError`."""
    return goyaml.load_yaml(raw)


# --- reading ----------


def _read(raw: bytes, is_yaml: bool, expected: GVK) -> tuple[dict[str, Any], GVK]:
    """The body as a dict, not checked yet, and the kind in it."""
    value = _load(raw, is_yaml, expected.kind)
    if value.__class__ is not dict:
        value = _no_object(value, raw, expected.kind)
    kind, api_version = value.get("kind"), value.get("apiVersion")
    if kind.__class__ is not str or api_version.__class__ is not str:
        kind, api_version = _find_kind(value, raw, expected.kind)
    return value, _resolve(kind, api_version, expected, raw)


def _load(raw: bytes, is_yaml: bool, kind: str) -> Any:
    if is_yaml:
        try:
            value = goyaml.load_yaml(raw)
            check_depth(value)
        except (goyaml.YamlError, TooDeep) as e:
            raise _unrecognised(kind, str(e), raw) from None
        return value
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _load_leniently(raw, kind)
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:
        try:
            check_depth(value)
        except TooDeep as e:
            raise _unrecognised(
                kind, f"couldn't get version/kind; json parse error: {e}", raw
            ) from None
    return value


def _load_leniently(raw: bytes, kind: str) -> Any:
    mistake = gojson.syntax_error(raw)
    if mistake is not None:
        raise _unrecognised(kind, f"couldn't get version/kind; json parse error: {mistake}", raw)
    try:
        return gojson.lenient_json(raw)
    except (TooDeep, RecursionError):
        raise _unrecognised(
            kind, f"couldn't get version/kind; json parse error: {TooDeep()}", raw
        ) from None


def _json_of(raw: bytes, is_yaml: bool) -> bytes:
    """The JSON that the decoder receives."""
    if not is_yaml:
        return raw

    return goyaml.to_json(raw)


def _problems(of: SchemaType | None, raw: bytes, is_yaml: bool) -> list[str]:
    return strictness.strict_decoding_problems(of, raw, is_yaml)


def _no_object(value: Any, raw: bytes, kind: str) -> dict[str, Any]:
    if value is None:
        return {}
    name = {list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    text = f"json: cannot unmarshal {name} into Go value of type {_FIND_KIND}"
    raise _unrecognised(kind, f"couldn't get version/kind; json parse error: {text}", raw)


def type_meta_mismatch(name: str, value: Any) -> str:
    what = {dict: "object", list: "array", bool: "bool"}.get(type(value), "number")
    text = f"json: cannot unmarshal {what} into Go struct field .{name} of type string"
    return f"couldn't get version/kind; json parse error: {text}"


def _find_kind(value: dict[str, Any], raw: bytes, expected: str) -> tuple[str, str]:
    """The kind as encoding/json finds it: keys in any case, null counts as missing."""
    found = {"kind": "", "apiversion": ""}
    for key, item in value.items():
        name = key.lower()
        if name not in found or item is None:
            continue
        if item.__class__ is not str:
            where = "kind" if name == "kind" else "apiVersion"
            raise _unrecognised(expected, type_meta_mismatch(where, item), raw)
        found[name] = item
    return found["kind"], found["apiversion"]


@text_cache(1024)
def _group_version(api_version: str) -> tuple[str, str] | None:
    if api_version in ("", "/"):
        return "", ""
    group, slash, version = api_version.partition("/")
    if not slash:
        return "", group
    return None if "/" in version else (group, version)


def _resolve(kind: str, api_version: str, expected: GVK, raw: bytes) -> GVK:
    """The kind of the body, completed with the expected one."""
    gv = _group_version(api_version)
    if gv is None:
        raise _unrecognised(expected.kind, f"unexpected GroupVersion string: {api_version}", raw)
    group, version = gv
    if not version and (not group or group == expected.group):
        group, version = expected.group, expected.version
    gvk = GVK(group, version, kind or expected.kind)
    if not version:
        raise _refusal(
            gvk, expected.kind, f"Object 'apiVersion' is missing in '{gojson.go_json_text(raw)}'"
        )
    return gvk


# --- built-in kinds ----------


def _typed(
    of: SchemaType, value: dict[str, Any], gvk: GVK, expected: GVK, raw: bytes, is_yaml: bool
) -> dict[str, Any]:
    function = roundtrip.normaliser(of)
    try:
        return function(value)
    except NeedsText:
        exact = (
            roundtrip.with_text(value)
            if is_yaml
            else json.loads(
                gojson.go_json_text(raw), parse_float=RawFloat, parse_int=gojson.parse_json_integer
            )
        )
        exact["kind"], exact["apiVersion"] = gvk.kind, gvk.api_version
        try:
            return roundtrip.without_text(function(exact))
        except TypeMismatch:
            pass
    except TypeMismatch:
        pass
    data = _json_of(raw, is_yaml)
    text = _type_error(of, data)
    if text:
        raise _refusal(gvk, expected.kind, text)
    # Only an integer of more than 64 bits gets here: orjson turns it into a float, Kubernetes'
    # decoder accepts some of them.
    exact = json.loads(gojson.go_json_text(data), parse_int=gojson.parse_json_integer)
    try:
        return function({**exact, "kind": gvk.kind, "apiVersion": gvk.api_version})
    except TypeMismatch:
        try:
            gojson.loads(data)
        except gojson.JsonError as e:  # a number beyond any float
            raise _refusal(gvk, expected.kind, str(e)) from None
        # The decoders of both releases accept what `normalise` does not.
        text = jsoniter.jsoniter_error(of, data) or sigsjson.decode_error(of, data)
        raise _refusal(gvk, expected.kind, text or "json: cannot unmarshal the object") from None


def _type_error(of: SchemaType, data: bytes) -> str:
    """The text of the release's decoder for JSON that does not fit a type."""
    if has_behaviour(of.table.release, "StrictJsonDecoder"):
        return sigsjson.decode_error(of, data)
    return jsoniter.jsoniter_error(of, data)


def _refuse(
    gvk: GVK, expected: GVK, types: SchemaTable, read: Callable[[SchemaType], object]
) -> NoReturn:
    """Raises the server's error for a body of another kind or version. `read` raises the errors of
    the body itself, which come first.
    """
    if not scheme.is_registered(gvk, expected.group):
        unknown = scheme.not_registered(gvk, expected.group, types.release)
        raise _refusal(gvk, expected.kind, unknown)
    of = types.lookup(gvk)
    if of is not None:
        read(of)
    text = scheme.kind_conversion_error(gvk, expected)
    if text is not None:
        raise _refusal(gvk, expected.kind, text)
    raise OtherVersionError(gvk, expected)


# --- protobuf ----------


def _from_protobuf(raw: bytes, expected: GVK, also: Collection[GVK], types: SchemaTable) -> Decoded:
    """Unknown fields have no name in protobuf, so there are no problems to report."""
    envelope, gvk = _unwrap(raw, expected)
    if gvk in also:
        expected = gvk
    of = types.lookup(expected)
    if of is None:
        raise _refusal(
            gvk, expected.kind, "Object 'Kind' is missing in 'object has no kind field '"
        )
    if gvk != expected:
        _refuse(gvk, expected, types, lambda found: _content(found, envelope, gvk, expected, raw))
    return Decoded(_content(of, envelope, gvk, expected, raw), gvk)


def _unwrap(raw: bytes, expected: GVK) -> tuple[Envelope, GVK]:
    try:
        envelope = protobuf.unwrap_envelope(raw)
    except protobuf.MalformedProtobuf as e:
        raise _unrecognised(expected.kind, str(e), raw) from None
    group, version = _group_version(envelope.api_version) or ("", "")
    if not version:
        group, version = expected.group, expected.version
    return envelope, GVK(group, version, envelope.kind or expected.kind)


def _content(
    of: SchemaType, envelope: Envelope, gvk: GVK, expected: GVK, raw: bytes
) -> dict[str, Any]:
    try:
        value = protobuf.decode_protobuf(of, raw, envelope.start, envelope.end)
        value["kind"], value["apiVersion"] = gvk.kind, gvk.api_version
        return roundtrip.normaliser(of)(value)
    except protobuf.MalformedProtobuf as e:
        raise _refusal(gvk, expected.kind, str(e)) from None
    except RecursionError:
        raise _refusal(gvk, expected.kind, "exceeded max depth") from None


# --- custom kinds ----------


def _custom(
    value: dict[str, Any],
    gvk: GVK,
    expected: GVK,
    raw: bytes,
    is_yaml: bool,
    types: SchemaTable,
) -> dict[str, Any]:
    if not value.get("kind"):
        data = _json_of(raw, is_yaml)
        missing = f"Object 'Kind' is missing in '{gojson.go_json_text(data.strip())}'"
        if has_behaviour(types.release, "StrictJsonDecoder"):
            raise _unrecognised(expected.kind, missing, raw)
        raise _refusal(gvk, expected.kind, jsoniter.unmarshaler_error(data, missing))
    if "metadata" in value:
        try:
            value["metadata"] = normalise_object_meta(value["metadata"], types)
        except DecodeError as e:
            raise _refusal(gvk, expected.kind, e.base) from None
    written = value.get("apiVersion") or ""
    if written != expected.api_version:
        group, version = _group_version(written) or ("", "")
        raise OtherVersionError(GVK(group, version, gvk.kind), expected)
    meta = value.pop("metadata", None)
    try:
        obj: dict[str, Any] = roundtrip.plain_json(value)
    except TypeMismatch:  # orjson rejects such numbers, so only the slow reader returns one
        try:
            gojson.loads(raw)
        except gojson.JsonError as e:
            raise _refusal(gvk, expected.kind, str(e)) from None
        raise
    if meta is not None:
        obj["metadata"] = meta
    return obj


# --- the texts ----------


def _unrecognised(kind: str, text: str, raw: bytes) -> DecodeError:
    return DecodeError(
        f"the object provided is unrecognized (must be of type {kind}): {text} ({_summary(raw)})",
        text,
    )


def _refusal(gvk: GVK, kind: str, text: str) -> DecodeError:
    return DecodeError(
        f'{gvk.kind} in version "{gvk.version}" cannot be handled as a {kind}: {text}', text
    )


def _summary(raw: bytes) -> str:
    if not raw:
        return "<empty>"
    more = " ..." if len(raw) > _SUMMARY_BYTES else ""
    start = raw[:_SUMMARY_BYTES]
    return (gojson.go_json_text(start) if raw[:1] == b"{" else start.hex()) + more
