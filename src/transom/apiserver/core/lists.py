"""LIST: a consistent snapshot, filtered and paged, as records; the responder encodes them."""

from __future__ import annotations

import asyncio
import base64
import posixpath
from collections.abc import Callable, Generator
from dataclasses import replace
from time import perf_counter

import orjson

from transom.apiserver.core.call import RecordListing
from transom.apiserver.core.options import ListOptions, parse_revision
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Storage
from transom.kit.goquote import go_quote
from transom.machinery import errors, gojson
from transom.machinery.objects import TooDeep
from transom.machinery.releases.behaviour import has_behaviour
from transom.store.api import FutureRevision, RecordPage, RevisionCompacted, StoreRecord

_TOKEN_VERSION = "meta.k8s.io/v1"
_NOT_CACHED = ("/Event",)  # kinds that Kubernetes always reads from etcd
_TURN = 0.005  # seconds of work before other tasks run
_CHECK = 32  # objects between two checks of the clock, which comes after each large one
_LARGE = 64 * 1024  # bytes
_SHARED_FROM = 512  # larger lists are shared snapshots
_SCAN = 2048  # records read at a time to fill a filtered page
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TOO_OLD_RESUME = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were "
    "created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def too_large_resource_version(revision: int, current: int) -> errors.ApiError:
    return errors.timeout(
        f"Timeout: Too large resource version: {revision}, current: {current}",
        1,
        [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
    )


def selector_filter(
    storage: Storage, res: Resource, options: ListOptions
) -> Callable[[StoreRecord], bool] | None:
    """The filter of the selectors for stored objects, or None if everything matches."""
    labels, fields = options.labels, options.fields
    if fields is not None and res.ops.converter is not None:
        fields = fields.of_metadata()  # others depend on the version: see `converted_lists`
        fields = None if fields.empty else fields
    if labels is None and fields is None:
        return None
    if fields is None:
        assert labels is not None
        return lambda record: labels.matches(storage.labels(res, record))
    if labels is None:
        return lambda record: fields.matches(storage.fields(res, record))
    return lambda record: (
        labels.matches(storage.labels(res, record)) and fields.matches(storage.fields(res, record))
    )


Steps = Generator[None, None, RecordListing]
"""A list that yields after a few milliseconds of work. It shows one state of the store, regardless
of later changes.
"""


async def list_in_turns(
    storage: Storage, res: Resource, namespace: str, options: ListOptions
) -> RecordListing:
    """Runs the list; yields to other tasks if it examines many objects."""
    try:
        return await finish_list(list_steps(storage, res, namespace, options))
    except PastNeeded as needed:
        return await list_past(storage, res, namespace, options, needed)


class PastNeeded(Exception):
    """The list is of a revision that is not in memory; `list_past` may find it in etcd."""

    def __init__(self, prefix: str, after: str, revision: int) -> None:
        super().__init__(f"revision {revision}")
        self.prefix = prefix
        self.after = after
        self.revision = revision


async def list_past(
    storage: Storage, res: Resource, namespace: str, options: ListOptions, needed: PastNeeded
) -> RecordListing:
    try:
        past = await storage.store.list_past(
            needed.prefix,
            after=needed.after,
            limit=0 if options.filtered else max(options.limit, 0),
            revision=needed.revision,
        )
    except RevisionCompacted:
        raise _too_old(options, needed.prefix, needed.after) from None
    return await finish_list(list_steps(storage, res, namespace, options, past))


async def finish_list(steps: Steps) -> RecordListing:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
        await asyncio.sleep(0)


def list_steps(
    storage: Storage,
    res: Resource,
    namespace: str,
    options: ListOptions,
    past: RecordPage | None = None,
) -> Steps:
    """`past`: the records of the page, if they are no longer in memory."""
    store = storage.store
    prefix = res.key_prefix(namespace)
    single = options.fields.exact("metadata.name") if options.fields is not None else None
    if single is not None and not namespace and res.kind.namespaced:
        single = None
    revision, after = 0, ""
    # a single name is looked up, and a continue token has no effect
    if options.token and single is None:
        revision, after = _decode_token(options.token, prefix)
        if options.version not in ("", "0"):
            raise errors.bad_request(
                "specifying resource version is not allowed when using continue"
            )
    elif options.version:
        wanted = parse_revision(options.version, res.release)
        exact = options.version_match == "Exact" or (
            options.limit > 0 and wanted > 0 and not options.version_match
        )
        if exact:
            revision = wanted
        elif wanted > store.revision:
            raise too_large_resource_version(wanted, store.revision)
        elif not wanted and options.limit and res.kind.key not in _NOT_CACHED:
            # any version is acceptable: the whole list is served from the cache
            options = replace(options, limit=0)
    if single is not None and not revision:
        record = store.get(res.key(namespace, single))
        keep = selector_filter(storage, res, options)
        found = [record] if record is not None and (keep is None or keep(record)) else []
        return RecordListing(found, store.revision)
    try:
        return (yield from _scan(storage, res, prefix, after, revision, options, past))
    except FutureRevision:
        if options.token:
            raise errors.bad_request("invalid continue token") from None
        if has_behaviour(res.release, "BadRevisionsAreBadRequests"):
            raise too_large_resource_version(revision, store.revision) from None
        raise errors.ApiError(
            500, "", "etcdserver: mvcc: required revision is a future revision"
        ) from None
    except RevisionCompacted:
        if store.follows:
            raise PastNeeded(prefix, after, revision) from None
        raise _too_old(options, prefix, after) from None


def _too_old(options: ListOptions, prefix: str, after: str) -> errors.ApiError:
    if not options.token:
        return errors.expired("The resourceVersion for the provided list is too old.")
    problem = errors.expired(_TOO_OLD_RESUME)
    problem.continue_token = encode_token(-1, after, prefix)
    return problem


def _scan(
    storage: Storage,
    res: Resource,
    prefix: str,
    after: str,
    revision: int,
    options: ListOptions,
    past: RecordPage | None,
) -> Steps:
    store = storage.store
    keep = selector_filter(storage, res, options)
    limit = max(options.limit, 0)
    if keep is None and not (limit or revision or after) and store.count(prefix) > _SHARED_FROM:
        snapshot = store.records(prefix)
        return RecordListing(snapshot, snapshot.revision)
    inconsistent = revision < 0  # a token of a list that could no longer be consistent
    page = (
        past
        if past is not None
        else store.list(
            prefix,
            after=after,
            limit=limit if keep is None else (_SCAN if limit else 0),
            revision=0 if inconsistent else revision,
        )
    )
    found: list[StoreRecord] = page.records if keep is None else []
    at = page.revision
    if keep is not None:
        pause_at = perf_counter() + _TURN
        more = False
        while True:
            for number, record in enumerate(page.records):
                if keep(record):
                    found.append(record)
                    if len(found) == limit:
                        # Whether later objects match is only known to the next request.
                        more = page.more or number + 1 < len(page.records)
                        break
                if (not number % _CHECK or len(record.value) > _LARGE) and (
                    perf_counter() > pause_at
                ):
                    yield
                    pause_at = perf_counter() + _TURN
            if not page.more or (limit and len(found) == limit):
                break
            page = store.list(prefix, after=page.records[-1].key, limit=_SCAN, revision=at)
        remaining = None
    else:
        more, remaining = page.more, (page.remaining if page.more else None)
    token = encode_token(at, found[-1].key, prefix) if more and found else ""
    return RecordListing(found, at, token, remaining)


def encode_token(revision: int, key: str, prefix: str) -> str:
    """Kubernetes' continue token: the next key and the revision."""
    body = {"v": _TOKEN_VERSION, "rv": revision, "start": key[len(prefix) :] + "\0"}
    return base64.urlsafe_b64encode(orjson.dumps(body)).decode().rstrip("=")


def _decode_token(token: str, prefix: str) -> tuple[int, str]:
    def invalid(why: str) -> errors.ApiError:
        return errors.bad_request(f"invalid continue token: continue key is not valid: {why}")

    bad = _illegal_base64(token)
    if bad is not None:
        raise invalid(f"illegal base64 data at input byte {bad}")
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    try:
        body = gojson.loads(raw)
    except (gojson.JsonError, TooDeep) as problem:
        raise invalid(str(problem)) from None
    if body is not None and not isinstance(body, dict):
        kind = {list: "array", str: "string", bool: "bool"}.get(type(body), "number")
        raise invalid(f"json: cannot unmarshal {kind} into Go value of type etcd3.continueToken")
    version, revision, start = ((body or {}).get(name) for name in ("v", "rv", "start"))
    if version != _TOKEN_VERSION:
        raise invalid(
            f"server does not recognize this encoded version {go_quote(str(version or ''))}"
        )
    if not revision or not isinstance(revision, int):
        raise invalid(f"incorrect encoded start resourceVersion (version {_TOKEN_VERSION})")
    if not start or not isinstance(start, str):
        raise invalid(f"encoded start key empty (version {_TOKEN_VERSION})")
    key = start if start.startswith("/") else "/" + start
    if posixpath.normpath(key) != key:  # no path may leave the list's prefix
        raise invalid(start)
    return revision, prefix + key[1:].rstrip("\0")


def _illegal_base64(token: str) -> int | None:
    """The offset of the first invalid byte, as in Go."""
    for at, byte in enumerate(token.encode()):
        if byte not in _BASE64:
            return at
    return len(token) - 1 if len(token) % 4 == 1 else None
