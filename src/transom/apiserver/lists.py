"""LIST: a consistent snapshot, filtered and paged, as records; turning them into bytes is the responder's work."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import orjson

from transom.apiserver.options import ListOptions, parse_revision
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage
from transom.machinery import errors, field, gojson
from transom.store.api import Compacted, FutureRevision, Record

_TOKEN_VERSION = "meta.k8s.io/v1"
_NOT_CACHED = ("/Event",)  # kinds that Kubernetes always reads from its store
_SCAN = 2048  # records read at a time when a filtered page has to be filled
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TOO_OLD_RESUME = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Listing(NamedTuple):
    records: list[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


async def readable(res: Resource, listing: Listing) -> Listing:
    """The listing for readers of this version; only a conversion webhook makes them wait."""
    if res.ops.converter is None:
        return listing
    return listing._replace(records=await res.ops.converter.records(listing.records, res.version))


def too_large(revision: int, current: int) -> errors.ApiError:
    return errors.timeout(
        f"Too large resource version: {revision}, current: {current}", 1,
        [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
    )


def matcher(storage: Storage, res: Resource, options: ListOptions) -> Callable[[Record], bool] | None:
    """The filter of the selectors, or None when everything matches."""
    labels, fields = options.labels, options.fields
    if labels is None and fields is None:
        return None
    if fields is None:
        assert labels is not None
        return lambda record: labels.matches(storage.labels(res, record))
    if labels is None:
        return lambda record: fields.matches(storage.fields(res, record))
    return lambda record: labels.matches(storage.labels(res, record)) and fields.matches(storage.fields(res, record))


def list_records(storage: Storage, res: Resource, namespace: str, options: ListOptions) -> Listing:
    store = storage.store
    prefix = res.key_prefix(namespace)
    single = options.fields.exact("metadata.name") if options.fields is not None else None
    if single is not None and not namespace and res.kind.namespaced:
        single = None
    revision, after = 0, ""
    if options.token and single is None:  # a name alone is looked up, and a token does not count
        revision, after = _decode_token(options.token, prefix)
        if options.version not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
    elif options.version:
        wanted = parse_revision(options.version)
        exact = options.version_match == "Exact" or (options.limit > 0 and wanted > 0 and not options.version_match)
        if exact:
            revision = wanted
        elif wanted > store.revision:
            raise too_large(wanted, store.revision)
        elif not wanted and options.limit and res.kind.key not in _NOT_CACHED:
            options = replace(options, limit=0)  # any version will do: the whole list comes from the cache
    if single is not None and not revision:
        record = store.get(res.key(namespace, single))
        keep = matcher(storage, res, options)
        found = [record] if record is not None and (keep is None or keep(record)) else []
        return Listing(found, store.revision)
    try:
        return _scan(storage, res, prefix, after, revision, options)
    except FutureRevision:
        if options.token:
            raise errors.bad_request("invalid continue token") from None
        raise errors.ApiError(
            500, "", "etcdserver: mvcc: required revision is a future revision"
        ) from None
    except Compacted:
        if not options.token:
            raise errors.expired(
                "The resourceVersion for the provided list is too old."
            ) from None
        problem = errors.expired(_TOO_OLD_RESUME)
        problem.list_token = _encode_token(-1, after, prefix)  # type: ignore[attr-defined]
        raise problem from None


def _scan(
    storage: Storage, res: Resource, prefix: str, after: str, revision: int, options: ListOptions
) -> Listing:
    store = storage.store
    keep = matcher(storage, res, options)
    limit = max(options.limit, 0)
    inconsistent = revision < 0  # a token that was given out for a list that could not be consistent any more
    page = store.list(prefix, after=after, limit=limit if keep is None else (_SCAN if limit else 0),
                      revision=0 if inconsistent else revision)
    found: list[Record] = page.records if keep is None else []
    at = page.revision
    if keep is not None:
        while True:
            for record in page.records:
                if keep(record):
                    found.append(record)
                    if limit and len(found) > limit:
                        break
            if not page.more or (limit and len(found) > limit):
                break
            page = store.list(prefix, after=page.records[-1].key, limit=_SCAN, revision=at)
        more = bool(limit) and len(found) > limit
        del found[limit or len(found):]
        remaining = None
    else:
        more, remaining = page.more, (page.remaining if page.more else None)
    token = _encode_token(at, found[-1].key, prefix) if more and found else ""
    return Listing(found, at, token, remaining)


def _encode_token(revision: int, key: str, prefix: str) -> str:
    """What Kubernetes calls the continue token: where to go on, and at which revision."""
    body = {"v": _TOKEN_VERSION, "rv": revision, "start": key[len(prefix):] + "\0"}
    return base64.urlsafe_b64encode(orjson.dumps(body)).decode().rstrip("=")


def _decode_token(token: str, prefix: str) -> tuple[int, str]:
    def invalid(why: str) -> errors.ApiError:
        return errors.bad_request(f"invalid continue token: continue key is not valid: {why}")

    bad = _illegal_base64(token)
    if bad is not None:
        raise invalid(f"illegal base64 data at input byte {bad}")
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    problem = gojson.syntax_error(raw)
    if problem:
        raise invalid(problem)
    body = orjson.loads(raw)
    if body is not None and not isinstance(body, dict):
        kind = {list: "array", str: "string", bool: "bool"}.get(type(body), "number")
        raise invalid(f"json: cannot unmarshal {kind} into Go value of type etcd3.continueToken")
    version, revision, start = ((body or {}).get(name) for name in ("v", "rv", "start"))
    if version != _TOKEN_VERSION:
        raise invalid(f"server does not recognize this encoded version {field.go_quote(str(version or ''))}")
    if not revision or not isinstance(revision, int):
        raise invalid(f"incorrect encoded start resourceVersion (version {_TOKEN_VERSION})")
    if not start or not isinstance(start, str):
        raise invalid(f"encoded start key empty (version {_TOKEN_VERSION})")
    key = start if start.startswith("/") else "/" + start
    if posixpath.normpath(key) != key:  # nobody climbs out of the list
        raise invalid(start)
    return revision, prefix + key[1:].rstrip("\0")


def _illegal_base64(token: str) -> int | None:
    """The place of the first byte that cannot be, as Go counts."""
    for at, byte in enumerate(token.encode()):
        if byte not in _BASE64:
            return at
    return len(token) - 1 if len(token) % 4 == 1 else None
