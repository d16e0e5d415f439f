"""Stored records to answers: one object, a list, a Status; as JSON, YAML, protobuf, Table or metadata only.

The common case costs nothing: stored bytes go out as they are, with kind and apiVersion put in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from transom.apiserver.lists import Listing
from transom.apiserver.negotiate import JSON, PROTOBUF, YAML, Form
from transom.apiserver.resources import Resource
from transom.apiserver.storage import decode_value
from transom.http.messages import Headers, Response
from transom.machinery import codec, tables
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object
from transom.machinery.tables import partial
from transom.store.api import Record

_SLAB = 256 * 1024
_WARNINGS_MOST, _WARNING_MOST = 4096, 256  # characters, of all and of one
_CACHE = (b"Cache-Control", b"no-cache, private")
_JSON_HEADERS: Headers = [(b"Content-Type", b"application/json"), _CACHE]
_YAML_HEADERS: Headers = [(b"Content-Type", b"application/yaml"), _CACHE]
_PROTOBUF_HEADERS: Headers = [(b"Content-Type", PROTOBUF.encode()), _CACHE]
_TEXT_HEADERS: Headers = [(b"Content-Type", b"text/plain; charset=utf-8"), (b"X-Content-Type-Options", b"nosniff"), _CACHE]


def warning_headers(warnings: Iterable[str]) -> Headers:
    """As Kubernetes bounds them: those with control characters are left out, and when all are too much together, each is
    cut, and none follows once they are too much again."""
    fitting = [text for text in warnings if text and not any(map(_is_control, text))]
    total = 0
    for i, text in enumerate(fitting):
        total += len(text)
        if total > _WARNINGS_MOST:
            return _cut_warnings(fitting, i + 1)
    return [_warning(text) for text in fitting]


def _cut_warnings(texts: list[str], replayed: int) -> Headers:
    out: Headers = []
    written = 0
    for i, text in enumerate(texts):
        if i >= replayed and written >= _WARNINGS_MOST:
            break
        cut = text[:_WARNING_MOST]
        written += len(cut)
        out.append(_warning(cut))
    return out


def _warning(text: str) -> tuple[bytes, bytes]:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return b"Warning", f'299 - "{quoted}"'.encode()


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f"


def plain_text(status: int, text: str) -> Response:
    return Response(status, _TEXT_HEADERS, text.encode())


def document(obj: Any, form: Form, status: int = 200, headers: Headers | None = None) -> Response:
    """Any dict, encoded as asked."""
    if form.media == YAML:
        return Response(status, _YAML_HEADERS + (headers or []), codec.to_yaml(obj).encode())
    if form.media == PROTOBUF:
        return Response(status, _PROTOBUF_HEADERS + (headers or []), _protobuf(obj))
    body = codec.pretty(obj) if form.pretty else orjson.dumps(obj)
    return Response(status, _JSON_HEADERS + (headers or []), body + b"\n")


def _protobuf(obj: Object) -> bytes:
    from transom.machinery import protobuf  # few clients take nothing else

    group, _, version = obj.get("apiVersion", "").rpartition("/")  # the document at /api has none
    return protobuf.encode(obj, GVK(group, version, obj["kind"]))


def raw_json(body: bytes, status: int = 200, headers: Headers | None = None) -> Response:
    return Response(status, _JSON_HEADERS + headers if headers else _JSON_HEADERS, body)


def failure(problem: ApiError, form: Form, warnings: Iterable[str] = ()) -> Response:
    headers: Headers = [(k.encode(), v.encode()) for k, v in problem.headers.items()]
    headers += warning_headers(warnings)
    status = problem.status()
    token = getattr(problem, "list_token", None)
    if token:
        status["metadata"] = {"continue": token}
    return document(status, form._replace(transform=""), problem.code, headers)


class ObjectResponse(Response):
    """An answer to somebody in this process: the object itself, which is shared."""

    __slots__ = ("obj",)

    def __init__(self, status: int, obj: Object) -> None:
        super().__init__(status, [])
        self.obj = obj


def served(res: Resource, record: Record) -> Object:
    """The object of a record in the version of the resource; the caller's own."""
    obj = decode_value(res, record.value)
    return obj if res.identity else res.ops.from_storage(obj)


def object_bytes(res: Resource, record: Record) -> bytes:
    if res.identity:
        return b"%b,%b\n" % (res.prefix, record.value[1:])
    return res.ops.object_bytes(record) + b"\n"


def one(
    res: Resource, record: Record, form: Form, now: float, status: int = 200, headers: Headers | None = None,
    include_object: str = "",
) -> Response:
    """The answer for one stored object."""
    if not form.transform and not form.pretty and form.media == JSON:
        return raw_json(object_bytes(res, record), status, headers)
    if not form.transform:
        return document(served(res, record), form, status, headers)
    if form.transform == "PartialObjectMetadataList":
        raise partial.is_no_list(res.kind)
    stored = decode_value(res, record.value)
    if form.transform == "PartialObjectMetadata":
        return document(partial.object_metadata(stored, form.version), form, status, headers)
    return document(_table(res, [stored], form, now, None, include_object), form, status, headers)


def _table(
    res: Resource, objs: list[Object], form: Form, now: float, list_metadata: Object | None, include_object: str,
    headers: bool = True,
) -> Object:
    problem = tables.check_include_object(include_object)
    if problem is not None:
        raise problem
    return tables.table(
        res.kind, objs, now=now, include_object=include_object or "Metadata", list_metadata=list_metadata,
        table_version=form.version, raw_encoder=lambda obj: res.ops.from_storage(dict(obj)),
        custom=res.ops.table_columns, headers=headers,
    )


def list_metadata(listing: Listing, *, custom: bool = False) -> Object:
    """Lists of custom objects always say whether they continue."""
    meta: Object = {"continue": "", "resourceVersion": str(listing.revision)} if custom else {
        "resourceVersion": str(listing.revision)}
    if listing.token:
        meta["continue"] = listing.token
        if listing.remaining is not None:
            meta["remainingItemCount"] = listing.remaining
    return meta


def many(res: Resource, listing: Listing, form: Form, now: float, include_object: str = "") -> Response:
    meta = list_metadata(listing, custom=res.custom and not form.transform)
    if form.transform == "PartialObjectMetadata":
        raise partial.is_a_list(res.kind)
    if form.transform:
        objs = [decode_value(res, r.value) for r in listing.records]
        if form.transform == "Table":
            return document(_table(res, objs, form, now, meta, include_object), form)
        return document(partial.object_metadata_list(objs, meta, form.version), form)
    if form.pretty or form.media != JSON:
        return document(list_object(res, [served(res, r) for r in listing.records], meta), form)
    return Response(200, _JSON_HEADERS, _list_slabs(res, listing.records, meta))


def joins(res: Resource, form: Form) -> bool:
    """Whether a list is made of stored bytes as they are; all others are decoded object by object."""
    return res.identity and not form.transform and not form.pretty and form.media == JSON


def list_object(res: Resource, objs: list[Object], meta: Object) -> Object:
    """A list of objects as a dict. Items of built-in kinds carry no kind and apiVersion, those of custom kinds do."""
    if not res.custom:
        objs = [{k: v for k, v in obj.items() if k not in ("kind", "apiVersion")} for obj in objs]
    return {"kind": res.kind.list_name, "apiVersion": res.api_version, "metadata": meta, "items": objs}


def _list_slabs(res: Resource, records: list[Record], meta: Object) -> list[bytes]:
    """The whole list as a few large pieces, joined from stored bytes."""
    head = orjson.dumps({"kind": res.kind.list_name, "apiVersion": res.api_version, "metadata": meta})[:-1] + b',"items":['
    if res.identity:
        values = [r.value for r in records]
    elif res.custom:
        values = [res.ops.object_bytes(r) for r in records]
    else:
        values = [orjson.dumps({k: v for k, v in served(res, r).items() if k not in ("kind", "apiVersion")}) for r in records]
    slabs: list[bytes] = []
    part: list[bytes] = []
    size = 0
    for value in values:
        part.append(value)
        size += len(value)
        if size >= _SLAB:
            slabs.append(b",".join(part))
            part, size = [], 0
    if part:
        slabs.append(b",".join(part))
    out: list[bytes] = [head]
    for index, slab in enumerate(slabs):
        out.append(b"," + slab if index else slab)
    out.append(b"]}\n")
    return out if len(out) > 4 else [b"".join(out)]


def success_status(res: Resource, name: str, uid: str) -> Object:
    details: Object = {"name": name}
    if res.gr.group:
        details["group"] = res.gr.group
    details["kind"] = res.gr.resource
    if uid:
        details["uid"] = uid
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


class JsonEvents:
    """Watch events as JSON lines of a version, framed as chunks; shared by all watchers of that version."""

    __slots__ = ("_res", "key")

    def __init__(self, res: Resource) -> None:
        self._res = res
        self.key: object = ("json", res.api_version)

    def event(self, kind: str, record: Record) -> bytes:
        return _chunk(b'{"type":"%b","object":%b}\n' % (kind.encode(), object_bytes(self._res, record)[:-1]))

    def bookmark(self, revision: int, initial: bool) -> bytes:
        return self._frame("BOOKMARK", bookmark_object(self._res, revision, initial))

    def error(self, status: Object) -> bytes:
        return self._frame("ERROR", status)

    def _frame(self, kind: str, content: Object) -> bytes:
        return _chunk(orjson.dumps({"type": kind, "object": content}) + b"\n")

    def join(self, parts: list[bytes]) -> bytes:
        return b"".join(parts)


def bookmark_object(res: Resource, revision: int, initial: bool) -> Object:
    meta: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    obj = {"kind": res.kind.kind, "apiVersion": res.api_version, "metadata": meta}
    if not res.custom:
        empty = res.ops.normalise({})
        obj.update({k: v for k, v in empty.items() if k not in ("kind", "apiVersion", "metadata")})
    return obj


class ConvertedEvents(JsonEvents):
    """Watch events as Tables or metadata. A Table's columns go with the first event only, so nobody shares these."""

    __slots__ = ("_first", "_form", "_include", "_now")

    def __init__(self, res: Resource, form: Form, now: Callable[[], float], include_object: str) -> None:
        super().__init__(res)
        self.key = object()
        self._form = form
        self._include = include_object
        self._now = now
        self._first = True

    def event(self, kind: str, record: Record) -> bytes:
        stored = decode_value(self._res, record.value)
        if self._form.transform == "Table":
            content = _table(self._res, [stored], self._form, self._now(), None, self._include, headers=self._first)
            self._first = False
        else:
            content = partial.object_metadata(stored, self._form.version)
        return self._frame(kind, content)

    def bookmark(self, revision: int, initial: bool) -> bytes:
        obj = bookmark_object(self._res, revision, initial)
        if self._form.transform == "Table":
            content: Object = {
                "kind": "Table", "apiVersion": f"{partial.META_GROUP}/{self._form.version}",
                "metadata": {"resourceVersion": str(revision)}, "columnDefinitions": None,
                "rows": [{"cells": [""], "object": partial.object_metadata(obj, self._form.version)}],
            }
        else:
            content = partial.object_metadata(obj, self._form.version)
        return self._frame("BOOKMARK", content)

    def _frame(self, kind: str, content: Object) -> bytes:
        if self._form.media == PROTOBUF:
            return _protobuf_event(kind, content)
        return super()._frame(kind, content)


class ProtobufEvents(JsonEvents):
    """Watch events for those who take nothing but protobuf; shared like JSON."""

    __slots__ = ()

    def __init__(self, res: Resource) -> None:
        super().__init__(res)
        self.key = ("protobuf", res.api_version)

    def event(self, kind: str, record: Record) -> bytes:
        return self._frame(kind, served(self._res, record))

    def _frame(self, kind: str, content: Object) -> bytes:
        return _protobuf_event(kind, content)


def events(res: Resource, form: Form, now: Callable[[], float], include_object: str) -> JsonEvents:
    """How a watcher that asked for this form sees events."""
    if form.transform:
        return ConvertedEvents(res, form, now, include_object)
    return ProtobufEvents(res) if form.media == PROTOBUF else JsonEvents(res)


def _protobuf_event(kind: str, content: Object) -> bytes:
    from transom.machinery import protobuf

    return _chunk(protobuf.watch_frame(kind, _protobuf(content)))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
