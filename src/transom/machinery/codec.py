"""Request bodies to objects and objects to bytes, with Kubernetes' own answers to bodies it cannot read.

`decode` reads JSON, YAML or protobuf, settles which kind the body is, and returns the object in the form of a Go round
trip. The fast path is orjson and a generated function; everything about error texts lives in modules that only a bad
body enters. YAML and protobuf are imported when they are met: they are slow to load. This module knows no HTTP beyond
the media type and no storage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from transom.machinery import gojson, jsoniter, schema, scheme
from transom.machinery import normalise as roundtrip
from transom.machinery.errors import ApiError, bad_request
from transom.machinery.kinds import GVK
from transom.machinery.normalise import NeedsText, RawFloat, TypeMismatch
from transom.machinery.schema import Type

if TYPE_CHECKING:
    from transom.machinery.protobuf import Envelope

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

_FIND_KIND = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)
_SUMMARY_BYTES = 30


@dataclass(slots=True)
class Decoded:
    obj: dict[str, Any]
    gvk: GVK
    # Unknown and duplicate fields, as texts in Kubernetes' order; only looked for when asked.
    problems: list[str] = field(default_factory=list)

    @property
    def unknown(self) -> list[str]:
        return [text for text in self.problems if text.startswith("unknown field ")]

    @property
    def duplicates(self) -> list[str]:
        return [text for text in self.problems if not text.startswith("unknown field ")]


class DecodeError(ApiError):
    """A body that cannot be read. `base` is the decoder's own text, for callers that answer otherwise than 400."""

    def __init__(self, message: str, base: str) -> None:
        super().__init__(400, "BadRequest", message)
        self.base = base


def decode(
    raw: bytes,
    media_type: str,
    expected: GVK,
    *,
    strict: bool = False,
    also: Collection[GVK] = (),
    versions: Collection[str] = (),
) -> Decoded:
    """The body as an object of the expected kind; DecodeError when it is none.

    With `strict`, unknown and duplicate fields are reported in `problems`. `also` are other versions that the place
    takes (an Eviction may be of policy/v1 or v1beta1). A kind without a built-in type is custom: its metadata is
    normalised, the rest is left alone; `versions` are those of its definition.
    """
    if media_type == PROTOBUF:
        return _from_protobuf(raw, expected, also)
    is_yaml = media_type == YAML
    value, gvk = _read(raw, is_yaml, expected)
    if gvk in also:
        expected = gvk
    of = schema.lookup(expected)
    if of is None:
        obj = _custom(value, gvk, expected, raw, is_yaml, versions)
    else:
        if gvk != expected:
            _refuse(gvk, expected, lambda found: _typed(found, dict(value), gvk, expected, raw, is_yaml))
        value["kind"], value["apiVersion"] = gvk.kind, gvk.api_version
        obj = _typed(of, value, gvk, expected, raw, is_yaml)
    return Decoded(obj, gvk, _problems(of, raw, is_yaml) if strict else [])


def decode_options(raw: bytes, media_type: str, expected: GVK) -> dict[str, Any]:
    """The options in a body (of a DELETE), which may come in any group version. The server does not translate what goes
    wrong here: a 500 with the bare text."""
    is_yaml = media_type == YAML
    try:
        if media_type == PROTOBUF:
            envelope, gvk = _unwrap(raw, expected)
        else:
            value, gvk = _read(raw, is_yaml, expected)
        if gvk.kind != expected.kind:
            text = scheme.not_registered(gvk, "meta.k8s.io")
            raise _refusal(gvk, expected.kind, text)
        of = schema.get(f"meta/v1.{expected.kind}")
        if media_type == PROTOBUF:
            return _content(of, envelope, gvk, expected, raw)
        return _typed(of, value, gvk, expected, raw, is_yaml)
    except DecodeError as e:
        raise ApiError(500, "", e.base) from None


def strict_error(decoded: Decoded, expected: GVK) -> DecodeError | None:
    """The refusal of `fieldValidation=Strict`, when there is anything to refuse."""
    if not decoded.problems:
        return None
    return _refusal(decoded.gvk, expected.kind, "strict decoding error: " + ", ".join(decoded.problems))


def normalise(of: Type | GVK, obj: dict[str, Any]) -> dict[str, Any]:
    """The object in the form of a Go round trip, a new dict that may share parts with the input. A value of a wrong
    type raises DecodeError with the text that decoding the object's JSON would give."""
    try:
        return roundtrip.normalise(of, obj)
    except TypeMismatch:
        kind = of if isinstance(of, Type) else schema.lookup(of)
        assert kind is not None
        text = jsoniter.error_text(kind, gojson.marshal(obj))
        raise DecodeError(text, text) from None


def normalise_meta(metadata: Any) -> dict[str, Any]:
    """The same for the metadata of a custom object, or of an object inside one."""
    return normalise(schema.get(schema.OBJECT_META), metadata)


def encode(obj: Any) -> bytes:
    """The object as JSON, without the line end that follows it on the wire."""
    return gojson.escape_html(orjson.dumps(obj))


def pretty(obj: Any) -> bytes:
    """JSON for people: two spaces, no line end."""
    return gojson.escape_html(orjson.dumps(obj, option=orjson.OPT_INDENT_2))


def to_yaml(obj: Any) -> str:
    from transom.machinery import goyaml

    return goyaml.dump(obj)


def from_yaml(raw: bytes) -> Any:
    """A YAML document as a JSON value; `goyaml.YamlError` when it is none."""
    from transom.machinery import goyaml

    return goyaml.load(raw)


# --- reading ----------


def _read(raw: bytes, is_yaml: bool, expected: GVK) -> tuple[dict[str, Any], GVK]:
    """The body as a dict, not checked yet, and the kind it says it is."""
    value = _load(raw, is_yaml, expected.kind)
    if value.__class__ is not dict:
        value = _no_object(value, raw, expected.kind)
    kind, api_version = value.get("kind"), value.get("apiVersion")
    if kind.__class__ is not str or api_version.__class__ is not str:
        kind, api_version = _find_kind(value, raw, expected.kind)
    return value, _resolve(kind, api_version, expected, raw)


def _load(raw: bytes, is_yaml: bool, kind: str) -> Any:
    if is_yaml:
        from transom.machinery import goyaml

        try:
            return goyaml.load(raw)
        except goyaml.YamlError as e:
            raise _unrecognised(kind, str(e), raw) from None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    mistake = gojson.syntax_error(raw)
    if mistake is not None:
        raise _unrecognised(kind, f"couldn't get version/kind; json parse error: {mistake}", raw)
    try:
        return _lenient(raw)
    except RecursionError:
        raise _unrecognised(kind, "exceeded max depth", raw) from None


def _json_of(raw: bytes, is_yaml: bool) -> bytes:
    """The JSON that the decoder sees."""
    if not is_yaml:
        return raw
    from transom.machinery import goyaml

    return goyaml.to_json(raw)


def _problems(of: Type | None, raw: bytes, is_yaml: bool) -> list[str]:
    from transom.machinery import strictness

    return strictness.problems(of, raw, is_yaml)


def _lenient(raw: bytes) -> Any:
    """JSON that Go takes and orjson does not: bad UTF-8, half surrogate pairs, numbers beyond any float."""
    text = gojson.text_of(raw)
    return _whole(json.loads(text))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole(k): _whole(v) for k, v in value.items()}
    return [_whole(v) for v in value] if isinstance(value, list) else value


def _no_object(value: Any, raw: bytes, kind: str) -> dict[str, Any]:
    if value is None:
        return {}
    name = {list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    text = f"json: cannot unmarshal {name} into Go value of type {_FIND_KIND}"
    raise _unrecognised(kind, f"couldn't get version/kind; json parse error: {text}", raw)


def _find_kind(value: dict[str, Any], raw: bytes, expected: str) -> tuple[str, str]:
    """What encoding/json finds: it takes keys in any case, and a null for nothing."""
    found = {"kind": "", "apiversion": ""}
    for key, item in value.items():
        name = key.lower()
        if name not in found or item is None:
            continue
        if item.__class__ is not str:
            what = {dict: "object", list: "array", bool: "bool"}.get(type(item), "number")
            where = "kind" if name == "kind" else "apiVersion"
            text = f"json: cannot unmarshal {what} into Go struct field .{where} of type string"
            raise _unrecognised(expected, f"couldn't get version/kind; json parse error: {text}", raw)
        found[name] = item
    return found["kind"], found["apiversion"]


@lru_cache(maxsize=1024)
def _group_version(api_version: str) -> tuple[str, str] | None:
    if api_version in ("", "/"):
        return "", ""
    group, slash, version = api_version.partition("/")
    if not slash:
        return "", group
    return None if "/" in version else (group, version)


def _resolve(kind: str, api_version: str, expected: GVK, raw: bytes) -> GVK:
    """The kind of the body, the expected one filling in what it does not say."""
    gv = _group_version(api_version)
    if gv is None:
        raise _unrecognised(expected.kind, f"unexpected GroupVersion string: {api_version}", raw)
    group, version = gv
    if not version and (not group or group == expected.group):
        group, version = expected.group, expected.version
    gvk = GVK(group, version, kind or expected.kind)
    if not version:
        raise _refusal(gvk, expected.kind, f"Object 'apiVersion' is missing in '{gojson.text_of(raw)}'")
    return gvk


# --- built-in kinds ----------


def _typed(
    of: Type, value: dict[str, Any], gvk: GVK, expected: GVK, raw: bytes, is_yaml: bool
) -> dict[str, Any]:
    function = roundtrip.normaliser(of)
    try:
        return function(value)
    except NeedsText:
        exact = roundtrip.with_text(value) if is_yaml else json.loads(gojson.text_of(raw), parse_float=RawFloat)
        exact["kind"], exact["apiVersion"] = gvk.kind, gvk.api_version
        try:
            return roundtrip.without_text(function(exact))
        except TypeMismatch:
            pass
    except TypeMismatch:
        pass
    data = _json_of(raw, is_yaml)
    text = jsoniter.error_text(of, data)
    if text:
        raise _refusal(gvk, expected.kind, text)
    # Only an integer of more than 64 bits gets here: orjson made a float of it, the decoder there takes some of them.
    return function({**json.loads(gojson.text_of(data)), "kind": gvk.kind, "apiVersion": gvk.api_version})


def _refuse(gvk: GVK, expected: GVK, read: Callable[[Type], object]) -> NoReturn:
    """Raises what the server says to a body of another kind or version. `read` raises what is wrong with the body in
    itself, which comes first."""
    if not scheme.knows(gvk, expected.group):
        raise _refusal(gvk, expected.kind, scheme.not_registered(gvk, expected.group))
    of = schema.lookup(gvk)
    if of is not None:
        read(of)
    text = scheme.conversion_error(gvk, expected)
    if text is not None:
        raise _refusal(gvk, expected.kind, text)
    raise _other_version(gvk, expected)


# --- protobuf ----------


def _from_protobuf(raw: bytes, expected: GVK, also: Collection[GVK]) -> Decoded:
    """Fields that nobody knows have no name in this form, so there are no problems to report."""
    envelope, gvk = _unwrap(raw, expected)
    if gvk in also:
        expected = gvk
    of = schema.lookup(expected)
    if of is None:
        raise _refusal(gvk, expected.kind, "Object 'Kind' is missing in 'object has no kind field '")
    if gvk != expected:
        _refuse(gvk, expected, lambda found: _content(found, envelope, gvk, expected, raw))
    return Decoded(_content(of, envelope, gvk, expected, raw), gvk)


def _unwrap(raw: bytes, expected: GVK) -> tuple[Envelope, GVK]:
    from transom.machinery import protobuf

    try:
        envelope = protobuf.unwrap(raw)
    except protobuf.Malformed as e:
        raise _unrecognised(expected.kind, str(e), raw) from None
    group, version = _group_version(envelope.api_version) or ("", "")
    if not version:
        group, version = expected.group, expected.version
    return envelope, GVK(group, version, envelope.kind or expected.kind)


def _content(of: Type, envelope: Envelope, gvk: GVK, expected: GVK, raw: bytes) -> dict[str, Any]:
    from transom.machinery import protobuf

    try:
        value = protobuf.decode(of, raw, envelope.start, envelope.end)
        value["kind"], value["apiVersion"] = gvk.kind, gvk.api_version
        return roundtrip.normaliser(of)(value)
    except protobuf.Malformed as e:
        raise _refusal(gvk, expected.kind, str(e)) from None
    except RecursionError:
        raise _refusal(gvk, expected.kind, "exceeded max depth") from None


# --- custom kinds ----------


def _custom(
    value: dict[str, Any], gvk: GVK, expected: GVK, raw: bytes, is_yaml: bool, versions: Collection[str]
) -> dict[str, Any]:
    if not value.get("kind"):
        data = _json_of(raw, is_yaml)
        missing = f"Object 'Kind' is missing in '{gojson.text_of(data.strip())}'"
        raise _refusal(gvk, expected.kind, jsoniter.unmarshaler_error(data, missing))
    if "metadata" in value:
        try:
            value["metadata"] = normalise_meta(value["metadata"])
        except DecodeError as e:
            raise _refusal(gvk, expected.kind, e.base) from None
    written = _group_version(value.get("apiVersion") or "") or ("", "")
    if written[0] != expected.group:
        source = f"{written[0]}/{written[1]}, Kind={gvk.kind}"
        raise _refusal(
            gvk, expected.kind,
            f'{source} is unstructured and is not suitable for converting to "{expected.api_version}"',
        )
    if versions and gvk.version not in versions:
        raise _refusal(
            gvk, expected.kind, f"request to convert CR from an invalid group/version: {gvk.api_version}"
        )
    if gvk.version != expected.version:
        raise _other_version(gvk, expected)
    meta = value.pop("metadata", None)
    obj: dict[str, Any] = roundtrip.plain(value)
    if meta is not None:
        obj["metadata"] = meta
    return obj


# --- the texts ----------


def _unrecognised(kind: str, text: str, raw: bytes) -> DecodeError:
    return DecodeError(f"the object provided is unrecognized (must be of type {kind}): {text} ({_summary(raw)})", text)


def _refusal(gvk: GVK, kind: str, text: str) -> DecodeError:
    return DecodeError(f'{gvk.kind} in version "{gvk.version}" cannot be handled as a {kind}: {text}', text)


def _other_version(gvk: GVK, expected: GVK) -> ApiError:
    return bad_request(
        f"the API version in the data ({gvk.api_version}) does not match the expected API version "
        f"({expected.api_version})"
    )


def _summary(raw: bytes) -> str:
    if not raw:
        return "<empty>"
    more = " ..." if len(raw) > _SUMMARY_BYTES else ""
    start = raw[:_SUMMARY_BYTES]
    return (gojson.text_of(start) if raw[:1] == b"{" else start.hex()) + more
