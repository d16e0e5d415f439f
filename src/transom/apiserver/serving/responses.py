"""Encodes stored records as responses: one object, a list, a Status; as JSON, YAML, protobuf, Table
or metadata only.

The common case is free: stored bytes are sent unchanged, with kind and apiVersion prepended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from transom.apiserver.core.bodies import JSON, PROTOBUF, YAML
from transom.apiserver.core.call import NO_REVISION, RecordListing
from transom.apiserver.core.objectstore import decode_value, served_object
from transom.apiserver.core.resources import Resource
from transom.apiserver.serving.listbody import (
    ListBody,
    document_frame,
    items_at_once,
    protobuf_list,
    stored_size,
)
from transom.apiserver.serving.negotiate import OutputForm
from transom.http.messages import Buffer, Headers, HttpResponse, encode_chunk
from transom.kit.lazy import lazy_import
from transom.machinery import codec
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.schema import BASE, schema_table
from transom.store.api import StoreRecord

# Few clients accept nothing but protobuf; tables are for kubectl.
if TYPE_CHECKING:
    from transom.machinery import protobuf, tables
    from transom.machinery.tables import partial
else:
    protobuf = lazy_import("transom.machinery.protobuf")
    tables = lazy_import("transom.machinery.tables")
    partial = lazy_import("transom.machinery.tables.partial")

# Lists of more objects than this are encoded while the client reads: of stored bytes, of decoded
# objects, as YAML.
_BIG, _BIG_DECODED, _BIG_YAML = 64, 100, 8
_BIG_BYTES = 256 * 1024  # and lists of more bytes than this
# Objects of more bytes than this are encoded in the worker thread, unless the stored bytes are sent
# unchanged.
_LARGE, _LARGE_YAML = 64 * 1024, 16 * 1024
# their fields have a different order in a Table
_REORDERED = "flowcontrol.apiserver.k8s.io/FlowSchema"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WARNINGS_MOST, _WARNING_MOST = 4096, 256  # characters: in total and of one
_CACHE = (b"Cache-Control", b"no-cache, private")
_JSON_HEADERS: Headers = [(b"Content-Type", b"application/json"), _CACHE]
_YAML_HEADERS: Headers = [(b"Content-Type", b"application/yaml"), _CACHE]
_PROTOBUF_HEADERS: Headers = [(b"Content-Type", PROTOBUF.encode()), _CACHE]


def warning_headers(warnings: Iterable[str]) -> Headers:
    """Limits warnings as Kubernetes does: drops those with control characters; if the total is too
    long, truncates each, and stops when the total is too long again.
    """
    fitting = [text for text in warnings if text and not _CONTROL.search(text)]
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


def document_response(
    obj: Any,
    form: OutputForm,
    status: int = 200,
    headers: Headers | None = None,
    release: Release = BASE.release,
) -> HttpResponse:
    """Any dict, in the requested format; protobuf is that of the release."""
    if form.media == YAML:
        return HttpResponse(status, _YAML_HEADERS + (headers or []), codec.to_yaml(obj).encode())
    if form.media == PROTOBUF:
        return HttpResponse(status, _PROTOBUF_HEADERS + (headers or []), _protobuf(obj, release))
    body = codec.pretty_json(obj) if form.pretty else orjson.dumps(obj)
    return HttpResponse(status, _JSON_HEADERS + (headers or []), body + b"\n")


def _protobuf(obj: Object, release: Release) -> bytes:
    group, _, version = obj.get("apiVersion", "").rpartition("/")  # the document at /api has none
    return protobuf.encode_protobuf(obj, GVK(group, version, obj["kind"]), schema_table(release))


def json_response(body: bytes, status: int = 200, headers: Headers | None = None) -> HttpResponse:
    return HttpResponse(status, _JSON_HEADERS + headers if headers else _JSON_HEADERS, body)


def error_response(
    problem: ApiError, form: OutputForm, warnings: Iterable[str] = ()
) -> HttpResponse:
    headers: Headers = [(k.encode(), v.encode()) for k, v in problem.headers.items()]
    headers += warning_headers(warnings)
    return document_response(problem.status(), form._replace(transform=""), problem.code, headers)


def object_bytes(res: Resource, record: StoreRecord) -> bytes:
    if res.identity:
        return b"%b,%b\n" % (res.prefix, record.value[1:])
    return res.ops.object_bytes(record) + b"\n"


def object_response(
    res: Resource,
    record: StoreRecord,
    form: OutputForm,
    now: float,
    status: int = 200,
    headers: Headers | None = None,
    include_object: str = "",
) -> HttpResponse:
    """The response for one stored object."""
    if not form.transform and not form.pretty and form.media == JSON:
        return json_response(object_bytes(res, record), status, headers)
    if not form.transform:
        return document_response(served_object(res, record), form, status, headers, res.release)
    if form.transform == "PartialObjectMetadataList":
        raise partial.is_no_list(res.kind)
    stored = decode_value(res, record.value)
    if form.transform == "PartialObjectMetadata":
        return document_response(
            partial.object_metadata(stored, form.version), form, status, headers
        )
    return document_response(
        _table(res, [stored], form, now, None, include_object), form, status, headers
    )


def _table(
    res: Resource,
    objs: list[Object],
    form: OutputForm,
    now: float,
    list_metadata: Object | None,
    include_object: str,
    headers: bool = True,
) -> Object:
    problem = tables.check_include_object(include_object)
    if problem is not None:
        raise problem
    return tables.make_table(
        res.kind,
        objs,
        now=now,
        include_object=include_object or "Metadata",
        list_metadata=list_metadata,
        table_version=form.version,
        raw_encoder=lambda obj: res.ops.from_storage(dict(obj)),
        custom=res.ops.table_columns,
        headers=headers,
        release=res.release,
    )


def scale_table(
    res: Resource, scale: Object, form: OutputForm, now: float, include_object: str
) -> Object:
    """The Table of the Scale of a workload or custom object."""
    problem = tables.check_include_object(include_object)
    if problem is not None:
        raise problem
    return tables.make_table(
        tables.SCALE,
        [scale],
        now=now,
        include_object=include_object or "Metadata",
        table_version=form.version,
        custom=tables.custom_scale_columns(res.release) if res.custom else None,
        release=res.release,
    )


def list_metadata(listing: RecordListing, *, custom: bool = False) -> Object:
    """Lists of custom objects always have a continue field."""
    meta: Object = (
        {"continue": "", "resourceVersion": str(listing.revision)}
        if custom
        else {"resourceVersion": str(listing.revision)}
    )
    if listing.revision == NO_REVISION:
        del meta["resourceVersion"]
    if listing.token:
        meta["continue"] = listing.token
        if listing.remaining is not None:
            meta["remainingItemCount"] = listing.remaining
    return meta


def list_response(
    res: Resource, listing: RecordListing, form: OutputForm, now: float, include_object: str = ""
) -> HttpResponse:
    meta = list_metadata(listing, custom=res.custom and not form.transform)
    if form.transform == "PartialObjectMetadata":
        raise partial.is_a_list(res.kind)
    records = listing.records
    if _is_lazy(res, records, form):
        return _many_lazily(res, records, meta, form, now, include_object)
    if form.transform:
        objs = [decode_value(res, r.value) for r in records]
        if form.transform == "Table":
            return document_response(_table(res, objs, form, now, meta, include_object), form)
        return document_response(partial.object_metadata_list(objs, meta, form.version), form)
    if form.pretty or form.media != JSON:
        return document_response(
            list_object(res, [served_object(res, r) for r in records], meta),
            form,
            release=res.release,
        )
    head = _list_head(res, meta)
    encode = _item_bytes(res)
    values = [r.value for r in records] if encode is None else [encode(r) for r in records]
    return HttpResponse(200, _JSON_HEADERS, head + b",".join(values) + b"]}\n")


def _is_lazy(res: Resource, records: Collection[StoreRecord], form: OutputForm) -> bool:
    """Whether the items are encoded while the client reads."""
    if res.kind.key in _REORDERED:
        return False
    if joins(res, form):
        most = _BIG
    else:
        most = _BIG_YAML if form.media == YAML else _BIG_DECODED
    return len(records) > most or (len(records) > 1 and stored_size(records) > _BIG_BYTES)


def needs_thread(res: Resource, records: Collection[StoreRecord], form: OutputForm) -> bool:
    """Whether `list_response` is slow."""
    if joins(res, form):
        return False
    if _is_lazy(res, records, form):
        return form.media == PROTOBUF
    return stored_size(records) > (_LARGE_YAML if form.media == YAML else _LARGE)


def is_long_protobuf_list(records: Collection[StoreRecord], form: OutputForm) -> bool:
    """Protobuf encodes the length of a list before its items."""
    return form.media == PROTOBUF and len(records) > _BIG_DECODED


def takes_long_to_encode(res: Resource, record: StoreRecord, form: OutputForm) -> bool:
    """Whether an object is too large to be encoded on the event loop."""
    return len(record.value) > (_LARGE_YAML if form.media == YAML else _LARGE) and not joins(
        res, form
    )


def _many_lazily(
    res: Resource,
    records: Collection[StoreRecord],
    meta: Object,
    form: OutputForm,
    now: float,
    include_object: str,
) -> HttpResponse:
    headers = {YAML: _YAML_HEADERS, PROTOBUF: _PROTOBUF_HEADERS}.get(form.media, _JSON_HEADERS)
    slow = not joins(res, form) and any(
        takes_long_to_encode(res, record, form) for record in records
    )
    if not form.transform and not form.pretty and form.media == JSON:
        encode = _item_bytes(res)
        batch = 4096 if encode is None else items_at_once(form)
        head = _list_head(res, meta)
        return HttpResponse(
            200, headers, ListBody(records, head, b"]}\n", b",", encode, batch, slow=slow)
        )
    item: Callable[[StoreRecord], Object]
    if form.transform == "Table":
        skeleton, key = _table(res, [], form, now, meta, include_object), "rows"

        def item(record: StoreRecord) -> Object:
            row: Object = _table(
                res, [decode_value(res, record.value)], form, now, None, include_object, False
            )["rows"][0]
            return row
    elif form.transform:
        skeleton, key = partial.object_metadata_list([], meta, form.version), "items"

        def item(record: StoreRecord) -> Object:
            return partial.object_metadata(decode_value(res, record.value), form.version)
    else:
        skeleton, key = list_object(res, [], meta), "items"

        def item(record: StoreRecord) -> Object:
            return _list_item(res, served_object(res, record))

    if form.media == PROTOBUF:
        group, _, version = skeleton["apiVersion"].rpartition("/")
        gvk = GVK(group, version, skeleton["kind"])
        return HttpResponse(
            200,
            headers,
            protobuf_list(records, gvk, meta, item, schema_table(res.release), slow=slow),
        )
    head, tail, separator, encode_item = document_frame(skeleton, key, form)
    body = ListBody(
        records,
        head,
        tail,
        separator,
        lambda record: encode_item(item(record)),
        items_at_once(form),
        slow=slow,
    )
    return HttpResponse(200, headers, body)


def _list_head(res: Resource, meta: Object) -> bytes:
    return (
        orjson.dumps({"kind": res.kind.list_name, "apiVersion": res.api_version, "metadata": meta})[
            :-1
        ]
        + b',"items":['
    )


def _item_bytes(res: Resource) -> Callable[[StoreRecord], bytes] | None:
    """How a record is encoded in a JSON list; None: as stored."""
    if res.identity:
        return None
    if res.custom:
        return res.ops.object_bytes
    return lambda record: orjson.dumps(_list_item(res, served_object(res, record)))


def _list_item(res: Resource, obj: Object) -> Object:
    """Items of built-in kinds have no kind and apiVersion, those of custom kinds do."""
    return obj if res.custom else {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}


def joins(res: Resource, form: OutputForm) -> bool:
    """Whether a list uses the stored bytes unchanged; otherwise each object is decoded."""
    return res.identity and not form.transform and not form.pretty and form.media == JSON


def list_object(res: Resource, objs: list[Object], meta: Object) -> Object:
    """A list of objects as a dict."""
    items = [_list_item(res, obj) for obj in objs]
    return {
        "kind": res.kind.list_name,
        "apiVersion": res.api_version,
        "metadata": meta,
        "items": items,
    }


_SLOW_EVENTS = 128 * 1024  # bytes of objects that are decoded to encode them, about 15 ms


class JsonWatchEncoder:
    """Watch events as JSON lines of a version, framed as chunks; shared by all watchers of that
    version.
    """

    __slots__ = ("_res", "key", "slow_from")
    headed = False
    batch = 512

    def __init__(self, res: Resource) -> None:
        self._res = res
        self.key: object = ("json", id(res))
        # Stored bytes are sent unchanged.
        self.slow_from: int | None = None if res.identity else _SLOW_EVENTS

    def event(self, kind: str, record: StoreRecord, first: bool = False) -> bytes:
        return encode_chunk(
            b'{"type":"%b","object":%b}\n' % (kind.encode(), object_bytes(self._res, record)[:-1])
        )

    def large(self, kind: str, record: StoreRecord) -> Sequence[Buffer] | None:
        """An event with a large object, built around its stored bytes."""
        if not self._res.identity:
            return None
        start = b'{"type":"%b","object":%b,' % (kind.encode(), self._res.prefix)
        value = memoryview(record.value)[1:]
        return [b"%x\r\n%b" % (len(start) + len(value) + 2, start), value, b"}\n\r\n"]

    def bookmark(self, revision: int, initial: bool) -> bytes:
        return self._frame("BOOKMARK", bookmark_object(self._res, revision, initial))

    def error(self, status: Object) -> bytes:
        return self._frame("ERROR", status)

    def _frame(self, kind: str, content: Object) -> bytes:
        return encode_chunk(orjson.dumps({"type": kind, "object": content}) + b"\n")

    def join(self, parts: list[bytes]) -> bytes:
        return b"".join(parts)


def bookmark_object(res: Resource, revision: int, initial: bool) -> Object:
    meta: Object = {"resourceVersion": str(revision)}
    if not has_behaviour(res.release, "OmittedZeroTimes"):
        meta["creationTimestamp"] = None
    if initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    obj = {"kind": res.kind.kind, "apiVersion": res.api_version, "metadata": meta}
    if not res.custom:
        empty = res.ops.normalise({})
        obj.update({k: v for k, v in empty.items() if k not in ("kind", "apiVersion", "metadata")})
    return obj


class TransformedWatchEncoder(JsonWatchEncoder):
    """Watch events as Tables or metadata. Only the first event of a watch has the Table's
    columns.
    """

    __slots__ = ("_form", "_include", "_now", "headed")
    batch = 32

    def __init__(
        self, res: Resource, form: OutputForm, now: Callable[[], float], include_object: str
    ) -> None:
        super().__init__(res)
        self.key = (form, include_object, id(res))
        self.slow_from = _SLOW_EVENTS
        self.headed = form.transform == "Table"
        self._form = form
        self._include = include_object
        self._now = now

    def event(self, kind: str, record: StoreRecord, first: bool = False) -> bytes:
        stored = decode_value(self._res, record.value)
        if self._form.transform == "Table":
            content = _table(
                self._res, [stored], self._form, self._now(), None, self._include, headers=first
            )
        else:
            content = partial.object_metadata(stored, self._form.version)
        return self._frame(kind, content)

    def large(self, kind: str, record: StoreRecord) -> Sequence[Buffer] | None:
        return None

    def bookmark(self, revision: int, initial: bool) -> bytes:
        obj = bookmark_object(self._res, revision, initial)
        if self._form.transform == "Table" and has_behaviour(self._res.release, "BookmarkRows"):
            content = _table(
                self._res, [obj], self._form, self._now(), None, self._include, headers=False
            )
            content["metadata"] = {"resourceVersion": str(revision)}
        elif self._form.transform == "Table":
            content = {
                "kind": "Table",
                "apiVersion": f"{partial.META_GROUP}/{self._form.version}",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": None,
                "rows": [
                    {"cells": [""], "object": partial.object_metadata(obj, self._form.version)}
                ],
            }
        else:
            content = partial.object_metadata(obj, self._form.version)
        return self._frame("BOOKMARK", content)

    def _frame(self, kind: str, content: Object) -> bytes:
        if self._form.media == PROTOBUF:
            return _protobuf_event(kind, content, self._res.release)
        return super()._frame(kind, content)


class ProtobufWatchEncoder(JsonWatchEncoder):
    """Watch events for clients that accept only protobuf; shared like JSON."""

    __slots__ = ()
    batch = 32

    def __init__(self, res: Resource) -> None:
        super().__init__(res)
        self.key = ("protobuf", id(res))
        self.slow_from = _SLOW_EVENTS

    def event(self, kind: str, record: StoreRecord, first: bool = False) -> bytes:
        return self._frame(kind, served_object(self._res, record))

    def large(self, kind: str, record: StoreRecord) -> Sequence[Buffer] | None:
        return None

    def _frame(self, kind: str, content: Object) -> bytes:
        return _protobuf_event(kind, content, self._res.release)


def watch_encoder(
    res: Resource, form: OutputForm, now: Callable[[], float], include_object: str
) -> JsonWatchEncoder:
    """The event form for the format that a watcher requested."""
    if form.transform:
        return TransformedWatchEncoder(res, form, now, include_object)
    return ProtobufWatchEncoder(res) if form.media == PROTOBUF else JsonWatchEncoder(res)


def _protobuf_event(kind: str, content: Object, release: Release) -> bytes:
    return encode_chunk(protobuf.watch_frame(kind, _protobuf(content, release)))
