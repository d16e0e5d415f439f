"""Conversion of custom objects with a webhook.

Code that needs an object in another version awaits `records`, `convert` or `convert_one`. Code that
cannot wait (field management) calls `converted`, which raises an error if the result is not known
yet; `settle` runs such code again after calling the webhook.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import orjson

from transom.apiserver.webhooks.client import CallFailed
from transom.kit.goquote import go_quote
from transom.kit.uuids import random_uuid
from transom.machinery import errors
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object, copy_object
from transom.machinery.validation.customobject import go_type_of_value
from transom.machinery.validation.meta import validate_annotations, validate_labels
from transom.store.api import StoreRecord

T = TypeVar("T")
_REVIEW_VERSIONS = ("v1", "v1beta1")
_GROUP = "apiextensions.k8s.io"
_TIMEOUT_SECONDS: Final = 30.0
# Bytes of stored objects in one call. Kubernetes sends a whole list, which would hold the event loop.
_LARGEST_CALL: Final = 1 << 20


class CallWebhook(Protocol):
    """Sends a review; returns what `work` makes of the answer. Raises CallFailed."""

    async def __call__(
        self,
        config: Mapping[str, Any],
        body: Object,
        within: float,
        work: Callable[[Object], T],
        /,
    ) -> T: ...


class ConversionNeeded(Exception):
    """Code that cannot wait needs an object in another version."""

    def __init__(self, obj: Object, version: str) -> None:
        super().__init__(version)
        self.obj = obj
        self.version = version


class WebhookConverter:
    """The converter of one definition."""

    def __init__(
        self,
        group: str,
        kind: str,
        webhook: Mapping[str, Any],
        call: CallWebhook,
        rng: random.Random,
    ) -> None:
        self._group = group
        self._kind = kind
        self._client: Mapping[str, Any] = webhook.get("clientConfig") or {}
        self._reviews: Sequence[str] = webhook.get("conversionReviewVersions") or ()
        self._call = call
        self._rng = rng
        # conversions that requests in progress need, with the number of those requests
        self._known: dict[tuple[bytes, str], tuple[Object, int]] = {}

    # ---- asynchronous conversion ----

    async def records(self, records: Sequence[StoreRecord], version: str) -> list[StoreRecord]:
        """Stored records as if they were stored in this version."""
        head = f'{{"apiVersion":"{self._group}/{version}",'.encode()
        out = list(records)
        todo = [(i, r) for i, r in enumerate(records) if not r.value.startswith(head)]
        if not todo:
            return out
        wanted = f"{self._group}/{version}"
        for part in _parts(todo):
            objs = [{"kind": self._kind, **orjson.loads(r.value)} for _, r in part]
            values = await self._ask(objs, wanted, _stored)
            for (i, record), value in zip(part, values, strict=True):
                out[i] = StoreRecord(
                    record.key,
                    value,
                    record.create_revision,
                    record.mod_revision,
                    record.expires,
                )
        return out

    async def convert_one(self, obj: Object, version: str) -> Object:
        return (await self.convert([obj], version))[0]

    async def convert(self, objs: Sequence[Object], version: str) -> list[Object]:
        """The objects in another version. Those that already have it are not sent."""
        wanted = f"{self._group}/{version}"
        todo = [obj for obj in objs if obj["apiVersion"] != wanted]
        if not todo:
            return list(objs)
        answers = iter(await self._ask(todo, wanted, _unchanged))
        return [obj if obj["apiVersion"] == wanted else next(answers) for obj in objs]

    # ---- synchronous conversion ----

    def converted(self, obj: Object, version: str) -> Object:
        key = (orjson.dumps(obj, option=orjson.OPT_SORT_KEYS), version)
        found = self._known.get(key)
        if found is None:
            raise ConversionNeeded(obj, version)
        return copy_object(found[0])

    async def settle(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs code that calls `converted`, repeatedly until all required conversions are known."""
        used: list[tuple[bytes, str]] = []
        try:
            while True:
                try:
                    return await work()
                except ConversionNeeded as need:
                    key = (orjson.dumps(need.obj, option=orjson.OPT_SORT_KEYS), need.version)
                    answer = await self.convert_one(need.obj, need.version)
                users = self._known[key][1] if key in self._known else 0
                self._known[key] = answer, users + 1
                used.append(key)
        finally:
            for key in used:
                answer, users = self._known.pop(key)
                if users > 1:
                    self._known[key] = answer, users - 1

    # ---- the webhook ----

    async def _ask(
        self, objs: Sequence[Object], wanted: str, work: Callable[[Object], T]
    ) -> list[T]:
        """What `work` makes of each converted object."""
        source = f"{objs[0]['apiVersion']}, Kind={self._kind}"
        review = next((v for v in self._reviews if v in _REVIEW_VERSIONS), None)
        if review is None:
            raise _failure("no supported conversion review versions")
        uid = random_uuid(self._rng)
        request = {
            "kind": "ConversionReview",
            "apiVersion": f"{_GROUP}/{review}",
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": list(objs)},
            "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
        }
        read = partial(_read_answer, objs, wanted, review, uid, work)
        try:
            return await self._call(self._client, request, _TIMEOUT_SECONDS, read)
        except _BadObjects as problem:
            raise _failure(f"conversion webhook for {source} returned {problem}") from None
        except CallFailed as problem:
            raise _failure(f"conversion webhook for {source} failed: {problem}") from None


class _BadObjects(CallFailed):
    """The webhook answered, but not with the objects."""


def _parts(records: list[tuple[int, StoreRecord]]) -> Iterator[list[tuple[int, StoreRecord]]]:
    """The records for each call."""
    part: list[tuple[int, StoreRecord]] = []
    size = 0
    for i, record in records:
        if part and size + len(record.value) > _LARGEST_CALL:
            yield part
            part, size = [], 0
        part.append((i, record))
        size += len(record.value)
    yield part


def _unchanged(obj: Object) -> Object:
    return obj


def _stored(obj: Object) -> bytes:
    """As in the store: without the kind."""
    head = {"apiVersion": obj["apiVersion"]}
    return orjson.dumps(
        {**head, **{k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}}
    )


def _read_answer(
    objs: Sequence[Object],
    wanted: str,
    review: str,
    uid: str,
    work: Callable[[Object], T],
    answer: Object,
) -> list[T]:
    """Runs in a worker thread if the answer is large."""
    answers = _converted_objects(answer, review, uid)
    if len(answers) != len(objs):
        raise _BadObjects(f"{len(answers)} objects, expected {len(objs)}")
    try:
        return [
            work(_checked(obj, answer, wanted)) for obj, answer in zip(objs, answers, strict=True)
        ]
    except CallFailed as problem:
        raise _BadObjects(f"invalid {problem}") from None


def _failure(text: str) -> errors.ApiError:
    return errors.ApiError(500, "", text)


def _converted_objects(answer: Object, review: str, uid: str) -> list[Any]:
    """The objects in a response. The type and uid of a v1beta1 review are not checked."""
    if review == "v1":
        group, _, version = str(answer.get("apiVersion", "")).rpartition("/")
        if (group, version, answer.get("kind")) != (_GROUP, "v1", "ConversionReview"):
            got = f"{group}/{version}, Kind={answer.get('kind', '')}"
            raise CallFailed(
                f"expected webhook response of {_GROUP}/v1, Kind=ConversionReview, got {got}"
            )
    response = answer.get("response")
    if not isinstance(response, dict):
        raise CallFailed("no response provided")
    if review == "v1" and response.get("uid", "") != uid:
        raise CallFailed(
            f"expected response.uid={go_quote(uid)}, got {go_quote(str(response.get('uid', '')))}"
        )
    result = response.get("result")
    if not isinstance(result, dict):
        result = {}
    if result.get("status") != "Success":
        raise CallFailed(
            result.get("message")
            or f"response.result.status was '{result.get('status', '')}', not 'Success'"
        )
    found = response.get("convertedObjects")
    return found if isinstance(found, list) else []


def _checked(original: Object, answer: Any, wanted: str) -> Object:
    """A converted object with the metadata of the original; only labels and annotations may
    change.
    """
    given = answer if isinstance(answer, dict) else {}
    if given.get("apiVersion", "") != wanted:
        raise CallFailed(
            f"object at index 0: invalid groupVersion (expected {wanted}, received "
            f"{given.get('apiVersion', '')})"
        )
    if given.get("kind", "") != original["kind"]:
        raise CallFailed(
            f"object at index 0: invalid kind (expected {original['kind']}, received "
            f"{given.get('kind', '')})"
        )
    before, meta = original.get("metadata") or {}, given.get("metadata")
    after = meta if isinstance(meta, dict) else {}
    for name, label in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if before.get(name, "") != after.get(name, ""):
            raise CallFailed(
                f"object: must have the same {label}: {before.get(name, '')} != "
                f"{after.get(name, '')}"
            )
    if "metadata" not in given:
        raise CallFailed("metadata: missing metadata in converted object")
    if not isinstance(meta, dict):
        raise CallFailed(
            f"metadata: invalid metadata of type {go_type_of_value(meta)} in converted object"
        )
    kept = dict(before)
    for name in ("labels", "annotations"):
        _take(kept, meta.get(name), name)
    return {**given, "metadata": kept}


def _take(kept: Object, value: Any, name: str) -> None:
    if value is None:
        kept.pop(name, None)
        return
    if not isinstance(value, dict):
        raise CallFailed(
            f"metadata: invalid metadata.{name} of type {go_type_of_value(value)} in converted object"
        )
    for key, text in value.items():
        if not isinstance(text, str):
            raise CallFailed(
                f"metadata: metadata.{name}[{key}] must be a string, but is {go_type_of_value(text)} "
                "in converted object"
            )
    if value != (kept.get(name) or {}):
        problems = (
            validate_labels(value, "metadata.labels")
            if name == "labels"
            else validate_annotations(value, "metadata.annotation")
        )
        if problems:
            raise CallFailed(f"metadata: {aggregate_text(problems)}")
    kept[name] = value
