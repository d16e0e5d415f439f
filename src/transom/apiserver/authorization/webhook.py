"""The webhook authorizer: asks another server with a SubjectAccessReview
(plugin/pkg/authorizer/webhook). Answers are cached as the configuration says.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from typing import Any, Final, NamedTuple

import orjson

from transom.apiserver.authorization.chain import NO_OPINION, Decision
from transom.apiserver.authorization.review_selectors import selectors_for_webhook
from transom.apiserver.core.answers import AnswerNeeded, find_answer
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.client.kubeconfig import (
    KubeconfigError,
    RestConfig,
    in_cluster_config,
    load_kubeconfig,
)
from transom.http import goerrors
from transom.http.outgoing import CallError, CallTarget
from transom.http.pool import ConnectionPool
from transom.kit.cel.errors import CelError
from transom.kit.clock import Clock
from transom.kit.http_message import encode_request
from transom.kit.workers import WorkRejected, WorkRunner, WorkTimeout
from transom.machinery.apiserver_config import ConfigurationError
from transom.machinery.authorization_config import WebhookConfig
from transom.machinery.cel.brief import BriefBudget, BriefBudgetSpentError
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object

log = logging.getLogger("transom.apiserver")

_CACHED: Final = 8192
_LONGEST_CACHED: Final = 10_000  # characters of the attributes that the client chooses
_LONGEST_REASON: Final = 1_000  # characters of a cached decision
_MOST_BYTES: Final = 1 << 20
_ATTEMPTS: Final = 5
_FIRST_WAIT: Final = 0.5
_WAIT_FACTOR: Final = 1.5
_CONDITION_SECONDS: Final = 2.0  # CPU time of all conditions for one request


class _Failed(Exception):
    """`again`: the call may be repeated."""

    def __init__(self, text: str, again: bool = False) -> None:
        super().__init__(text)
        self.again = again


class _Cached(NamedTuple):
    decision: Decision
    until: float


class WebhookAuthorizer:
    def __init__(
        self,
        name: str,
        config: WebhookConfig,
        clock: Clock,
        pool: ConnectionPool,
        workers: WorkRunner,
        *,
        selectors: bool = False,
    ) -> None:
        """`selectors`: the webhook learns the selectors of lists. Raises ConfigurationError if the
        kubeconfig cannot be used.
        """
        self._selectors = selectors
        self.name = name
        self._config = config
        self._clock = clock
        self._pool = pool
        self._workers = workers
        self._known: OrderedDict[bytes, _Cached] = OrderedDict()
        self._rest = _rest_config(config.kubeconfig)
        rest = self._rest
        self._target = CallTarget(
            rest.host,
            rest.port,
            rest.server_name or rest.host,
            tls=rest.tls is not None,
            context=rest.tls,
        )

    def __call__(self, user: UserInfo, info: RequestInfo) -> Decision:
        spec = review_spec(user, info, selectors=self._selectors)
        try:
            if not self._matches(spec):
                return NO_OPINION
        except CelError as problem:
            return self._on_error(str(problem))
        key = _digest(spec)
        known = self._known.get(key)
        if known is not None and known.until > self._clock.monotonic():
            self._known.move_to_end(key)
            return known.decision
        answer: Decision | None = find_answer((self, key))
        if answer is None:
            raise AnswerNeeded((self, key), lambda: self._ask(key, spec, info))
        return answer

    def _matches(self, spec: Object) -> bool:
        """Raises CelError, and AnswerNeeded if the conditions must be evaluated in a worker."""
        if not self._config.conditions:
            return True
        request = _cel_request(spec)
        try:
            return self._evaluate(request, BriefBudget())
        except BriefBudgetSpentError:
            key = (self, "match", _digest(spec))
        found: bool | CelError | None = find_answer(key)
        if found is None:
            raise AnswerNeeded(key, lambda: self._evaluate_in_worker(request))
        if isinstance(found, CelError):
            raise found
        return found

    async def _evaluate_in_worker(self, request: Object) -> bool | CelError:
        try:
            return await self._workers.run(
                lambda: self._evaluate(request, None),
                group=request["user"],
                seconds=_CONDITION_SECONDS,
            )
        except CelError as problem:
            return problem
        except (WorkTimeout, WorkRejected) as problem:
            return CelError(f"match conditions cannot be evaluated: {problem}")

    def _evaluate(self, request: Object, brief: BriefBudget | None) -> bool:
        """Raises CelError with all errors, unless one of the conditions is false."""
        errors = []
        for condition in self._config.conditions:
            try:
                if condition.evaluate(request, brief) is not True:
                    return False
            except CelError as problem:
                errors.append(
                    f"cel evaluation error: expression '{condition.source}' resulted in error: "
                    f"{problem}"
                )
        if errors:
            raise CelError(aggregate_text(errors))
        return True

    def _on_error(self, text: str) -> Decision:
        return Decision(False if self._config.denies_on_failure else None, "", text)

    async def _ask(self, key: bytes, spec: Object, info: RequestInfo) -> Decision:
        version = self._config.version
        sent = spec
        if version == "v1beta1":
            sent = {("group" if k == "groups" else k): v for k, v in spec.items()}
        review = {
            "kind": "SubjectAccessReview",
            "apiVersion": f"authorization.k8s.io/{version}",
            "metadata": {"creationTimestamp": None},
            "spec": sent,
            "status": {"allowed": False},
        }
        try:
            status = await self._post_with_retries(orjson.dumps(review))
        except _Failed as problem:
            log.error("Failed to make webhook authorizer request: %s", problem)
            return self._on_error(str(problem))
        decision = _decision(status)
        ttl = (
            self._config.authorized_ttl if status.get("allowed") else self._config.unauthorized_ttl
        )
        if ttl > 0 and _is_cacheable(info) and len(decision.reason) <= _LONGEST_REASON:
            self._known[key] = _Cached(decision, self._clock.monotonic() + ttl)
            self._known.move_to_end(key)
            while len(self._known) > _CACHED:
                self._known.popitem(last=False)
        return decision

    async def _post_with_retries(self, body: bytes) -> Object:
        wait = _FIRST_WAIT
        for attempt in range(_ATTEMPTS):
            try:
                async with asyncio.timeout(self._config.timeout):
                    return await self._post(body)
            except TimeoutError:
                raise _Failed(f'Post "{self._url}": {goerrors.DEADLINE}') from None
            except _Failed as problem:
                if not problem.again or attempt == _ATTEMPTS - 1:
                    raise
            await self._clock.sleep(wait)
            wait *= _WAIT_FACTOR
        raise AssertionError("the last attempt returns or raises")

    @property
    def _url(self) -> str:
        rest = self._rest
        scheme = "https" if rest.tls is not None else "http"
        return f"{scheme}://{rest.host}:{rest.port}{rest.prefix or '/'}?timeout={self._config.timeout:g}s"

    async def _post(self, body: bytes) -> Object:
        rest = self._rest
        headers = [
            *rest.request_headers(),
            ("Accept", "application/json, */*"),
            ("Content-Type", "application/json"),
        ]
        path = f"{rest.prefix or '/'}?timeout={self._config.timeout:g}s"
        try:
            connection, head = await self._pool.begin(
                self._target, encode_request("POST", path, headers, body)
            )
        except CallError as problem:
            raise _Failed(f'Post "{self._url}": {problem}') from None
        try:
            answer = await connection.read_all(_MOST_BYTES)
        except CallError as problem:
            connection.abort()
            raise _Failed(f'Post "{self._url}": {problem}') from None
        except BaseException:
            connection.abort()
            raise
        self._pool.give_back(connection)
        if not 200 <= head.status <= 206:
            text = answer[:1000].decode(errors="replace").strip()
            again = head.status == 429 or head.status >= 500
            raise _Failed(f"the webhook answered {head.status}: {text}", again)
        return _status(answer)


def _rest_config(kubeconfig: str) -> RestConfig:
    try:
        return load_kubeconfig(kubeconfig) if kubeconfig else in_cluster_config()
    except KubeconfigError as problem:
        raise ConfigurationError(str(problem)) from None


def review_spec(user: UserInfo, info: RequestInfo, *, selectors: bool = False) -> Object:
    """The spec of a SubjectAccessReview, without empty fields."""
    spec: Object = {}
    if info.is_resource:
        attributes = {
            "namespace": info.namespace,
            "verb": info.verb,
            "group": info.group,
            "version": info.version,
            "resource": info.resource,
            "subresource": info.subresource,
            "name": info.name,
        }
        given: Object = {k: v for k, v in attributes.items() if v}
        if selectors and (info.fields or info.labels):
            given |= selectors_for_webhook(info.fields, info.labels)
        spec["resourceAttributes"] = given
    else:
        spec["nonResourceAttributes"] = {"path": info.path, "verb": info.verb}
    identity = {
        "user": user.name,
        "groups": list(user.groups),
        "extra": dict(user.extra),
        "uid": user.uid,
    }
    return {**spec, **{k: v for k, v in identity.items() if v}}


def _digest(spec: Object) -> bytes:
    """Stands for a review, which may name megabytes of groups."""
    return hashlib.sha256(orjson.dumps(spec)).digest()


def _cel_request(spec: Object) -> Object:
    """The spec with every field, as expressions see it."""
    request: Object = {"user": "", "groups": [], "uid": "", "extra": {}, **spec}
    attributes = request.get("resourceAttributes")
    if attributes is not None:
        names = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
        request["resourceAttributes"] = {name: attributes.get(name, "") for name in names} | {
            name: attributes[name]
            for name in ("fieldSelector", "labelSelector")
            if name in attributes
        }
    return request


def _is_cacheable(info: RequestInfo) -> bool:
    chosen = (info.namespace, info.name, info.resource, info.subresource, info.group, info.path)
    return sum(map(len, chosen)) < _LONGEST_CACHED


def _status(answer: bytes) -> Object:
    try:
        value: Any = orjson.loads(answer)
    except orjson.JSONDecodeError as problem:
        raise _Failed(f"the webhook's answer is not JSON: {problem}") from None
    status = value.get("status") if isinstance(value, dict) else None
    if not isinstance(status, dict):
        raise _Failed("the webhook's answer has no status")
    return status


def _decision(status: Object) -> Decision:
    reason = status.get("reason")
    text = reason if isinstance(reason, str) else ""
    denied, allowed = status.get("denied") is True, status.get("allowed") is True
    if denied and allowed:
        both = "webhook subject access review returned both allow and deny response"
        return Decision(False, text, both)
    return Decision(False if denied else True if allowed else None, text)
