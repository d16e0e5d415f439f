"""The audit event of one request: Kubernetes' `audit.k8s.io/v1` Event, stage by stage.

The event loop only records what happens; the log's thread does the encoding. That thread shares the
interpreter lock with the event loop, so bodies are recorded as raw bytes: they are decoded only to
check or redact them, up to a size limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import orjson

from transom.apiserver.audit import redact
from transom.apiserver.audit.log import AuditLogEntry
from transom.apiserver.audit.policy import REQUEST, REQUEST_RESPONSE, AuditDecision
from transom.apiserver.core.context import RequestContext, UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.kit.clock import rfc3339_micro
from transom.kit.named_tuple import NamedTuple
from transom.machinery import codec

_LEVEL_NAMES = ("None", "Metadata", "Request", "RequestResponse")
_LONGEST_AGENT = 1024
_STATUS_LIMIT = 64 * 1024  # a Status is never larger; larger bodies are not decoded to find out
_WRITING = frozenset(("create", "update", "patch", "delete", "deletecollection"))
_PROTOBUF = b"k8s\x00"
_HEAD_BYTES = 2048  # of an event without its bodies
# Kubernetes' largest batch for its truncating backend (--audit-log-truncate-max-batch-size).
_MAX_RECORDED = 10 << 20
_MAX_DECODED = 2 << 20  # bytes of JSON: about 20 ms in which no other thread runs
_MAX_YAML = 64 << 10
_TRUNCATED = "audit.k8s.io/truncated"

Write = Callable[[AuditLogEntry], None]


class AuditStage(Enum):
    REQUEST_RECEIVED = "RequestReceived"
    RESPONSE_STARTED = "ResponseStarted"
    RESPONSE_COMPLETE = "ResponseComplete"
    PANIC = "Panic"


class RequestSource(NamedTuple):
    """The source of a request, and its body."""

    uri: str
    body: bytes
    user_agent: str = ""
    ips: Sequence[str] = ()
    audit_id: str = ""  # provided by the client


class ResponseBody(NamedTuple):
    """A body that `read` encodes in the log's thread."""

    media: bytes
    size: int
    read: Callable[[], bytes]
    in_parts: bool = False  # it comes from another server

    @property
    def is_yaml(self) -> bool:
        return self.media.startswith(b"application/yaml")


class AuditEvent:
    __slots__ = (
        "_decision",
        "_head",
        "_info",
        "_omit",
        "_ref",
        "_request_object",
        "_responded",
        "_source",
        "_write",
        "annotations",
        "audit_id",
        "impersonated",
        "panicked",
    )

    def __init__(
        self,
        write: Write,
        decision: AuditDecision,
        audit_id: str,
        source: RequestSource,
        user: UserInfo | None,
        info: RequestInfo,
        received: float,
    ) -> None:
        self._write = write
        self._decision = decision
        self._omit = decision.omit
        self._info = info
        self._source = source
        self._request_object: bytes | None = None
        self._responded: tuple[dict[str, object], ResponseBody | None] | None = None
        self.audit_id = audit_id
        self.annotations: dict[str, str] = {}
        self.impersonated: UserInfo | None = None
        self.panicked = ""
        agent = source.user_agent
        self._head: dict[str, object] = {
            "requestURI": redact.redact_url(source.uri),
            "verb": info.verb,
            "user": {} if user is None else user.info(),
            "sourceIPs": list(source.ips),
            "userAgent": agent
            if len(agent) <= _LONGEST_AGENT
            else agent[:_LONGEST_AGENT] + "...TRUNCATED",
            "received": rfc3339_micro(received),
        }
        self._ref: dict[str, str] = {}
        if info.is_resource:
            self._ref = {
                "resource": info.resource,
                "namespace": info.namespace,
                "name": info.name,
                "apiGroup": info.group,
                "apiVersion": info.version,
                "subresource": info.subresource,
            }

    # ---- annotations of the request ----

    def request_object(self, obj: Mapping[str, Any]) -> None:
        """The decoded body, with defaults and before admission."""
        meta = obj.get("metadata") or {}
        for key, name in (
            ("namespace", "namespace"),
            ("name", "name"),
            ("uid", "uid"),
            ("resourceVersion", "resourceVersion"),
        ):
            if not self._ref.get(key) and meta.get(name):
                self._ref[key] = meta[name]
        if self._decision.level >= REQUEST:
            self._request_object = orjson.dumps(obj)

    def decided(self, allowed: bool, reason: str) -> None:
        self.annotations["authorization.k8s.io/decision"] = "allow" if allowed else "forbid"
        self.annotations["authorization.k8s.io/reason"] = reason

    # ---- stages ----

    def emit(self, stage: AuditStage, now: float, ctx: RequestContext | None = None) -> None:
        if stage.value in self._omit:
            return
        annotations = self.annotations
        if ctx is not None and (
            ctx.annotations or (ctx.body_annotations and self._decision.level >= REQUEST)
        ):
            more = ctx.body_annotations if self._decision.level >= REQUEST else {}
            annotations = {**annotations, **ctx.annotations, **more}
        received = stage is AuditStage.REQUEST_RECEIVED
        moment = _Moment(
            self,
            stage,
            self._head["received"] if received else rfc3339_micro(now),
            dict(annotations),
        )
        self._write(moment)

    def responded(self, code: int, body: ResponseBody | None) -> None:
        """The response, which the next stages include."""
        self._responded = ({"metadata": {}, "code": code}, body)

    @property
    def shows_responses(self) -> bool:
        return self._decision.level >= REQUEST_RESPONSE

    @property
    def bodies(self) -> tuple[bytes | None, ResponseBody | None]:
        """The bodies that the thread must decode, as far as the level requires."""
        body = None
        if (
            self._decision.level >= REQUEST
            and self._info.verb in _WRITING
            and self._info.is_resource
        ):
            # Kubernetes records what its handlers have decoded; the body of a forbidden request is
            # never decoded.
            allowed = self.annotations.get("authorization.k8s.io/decision") != "forbid"
            body = self._request_object or (self._source.body if allowed else None) or None
        return body, None if self._responded is None else self._responded[1]


class _Moment:
    """One stage, with copies of everything that may change later."""

    __slots__ = (
        "_annotations",
        "_body",
        "_event",
        "_impersonated",
        "_panicked",
        "_ref",
        "_response",
        "_stage",
        "_status",
        "_time",
        "_truncated",
        "size",
    )

    def __init__(
        self, event: AuditEvent, stage: AuditStage, time: object, annotations: dict[str, str]
    ) -> None:
        self._event = event
        self._stage = stage
        self._time = time
        self._annotations = annotations
        self._ref = {key: value for key, value in event._ref.items() if value}
        self._impersonated = event.impersonated
        self._panicked = event.panicked
        self._status = None if event._responded is None else event._responded[0]
        received = stage is AuditStage.REQUEST_RECEIVED
        self._body, self._response = (None, None) if received else event.bodies
        self._truncated = False
        size = 0
        if self._response is not None and event._decision.level >= REQUEST_RESPONSE:
            size = self._response.size
            if size > (_MAX_YAML if self._response.is_yaml else _MAX_RECORDED):
                self._response, self._truncated = None, True
                size = 0
        self.size = _HEAD_BYTES + size + (0 if self._body is None else len(self._body))

    def truncate(self) -> None:
        if self.size > _HEAD_BYTES:
            self._body = self._response = None
            self._truncated = True
            self.size = _HEAD_BYTES

    def line(self) -> dict[str, object]:
        event = self._event
        level = event._decision.level
        head = event._head
        out: dict[str, object] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": _LEVEL_NAMES[level],
            "auditID": event.audit_id,
            "stage": self._stage.value,
            "requestURI": head["requestURI"],
            "verb": head["verb"],
            "user": head["user"],
        }
        if self._impersonated is not None:
            out["impersonatedUser"] = self._impersonated.info()
        for name in ("sourceIPs", "userAgent"):
            if head[name]:
                out[name] = head[name]
        if self._ref:
            out["objectRef"] = self._ref
        answer = None if self._response is None else _json_bytes(self._response, level)
        if self._panicked:
            out["responseStatus"] = {
                "metadata": {},
                "status": "Failure",
                "message": f"APIServer panic'd: {self._panicked}",
                "reason": "InternalError",
                "code": 500,
            }
        elif self._status is not None:
            out["responseStatus"] = _status(self._status, answer)
        if level >= REQUEST and self._body is not None:
            wanted = self._recorded(self._body, checked=False)
            if wanted is not None:
                out["requestObject"] = wanted
        if level >= REQUEST_RESPONSE and answer is not None and not self._panicked:
            assert self._response is not None
            # Bodies that this server encodes in chunks, or as one large piece, are its own JSON.
            # Bodies of aggregated servers are small or arrive in parts.
            checked = not self._response.in_parts and len(answer) > _MAX_DECODED
            found = self._recorded(answer, checked=checked, kind=True)
            if found is not None:
                out["responseObject"] = found
        out["requestReceivedTimestamp"] = head["received"]
        out["stageTimestamp"] = self._time
        if self._truncated:
            self._annotations[_TRUNCATED] = "true"
        if self._annotations:
            out["annotations"] = dict(sorted(self._annotations.items()))
        return out

    def _recorded(self, raw: bytes, *, checked: bool, kind: bool = False) -> object:
        """A body for the log; None if it is not JSON or YAML, or too large to check. `checked`: it
        is known to be JSON. `kind`: only objects with a kind are recorded.
        """
        redacted = self._event._decision.omit_managed_fields or self._is_secret
        if checked and not redacted and raw[:1] == b"{" and b'"kind"' in raw[:16]:
            return orjson.Fragment(raw.replace(b"\n", b" "))
        if len(raw) > _MAX_DECODED:
            self._truncated = True
            return None
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError:
            if raw.startswith(_PROTOBUF):
                return None
            if len(raw) > _MAX_YAML:
                self._truncated = True
                return None
            value, redacted = _from_yaml(raw), True
        if value is None or (kind and not (isinstance(value, dict) and "kind" in value)):
            return None
        # Valid JSON is not changed, however deeply it is nested.
        return self._clean(value) if redacted else orjson.Fragment(raw.replace(b"\n", b" "))

    @property
    def _is_secret(self) -> bool:
        info = self._event._info
        return (info.group, info.resource) == ("", "secrets")

    def _clean(self, value: Any) -> Any:
        if self._is_secret:
            value = redact.redact_secret(value)
        return (
            redact.redact_managed_fields(value)
            if self._event._decision.omit_managed_fields
            else value
        )


def _json_bytes(response: ResponseBody, level: int) -> bytes | None:
    """The response if it is JSON or YAML: the whole body if it is recorded, otherwise only a
    possible Status.
    """
    if level < REQUEST_RESPONSE and response.size > _STATUS_LIMIT:
        return None
    if not response.media.startswith((b"application/json", b"application/yaml")):
        return None
    return response.read()


def _status(status: dict[str, object], raw: bytes | None) -> dict[str, object]:
    """The bounded fields of a Status in the response; its message may contain parts of the
    request.
    """
    if raw is None or len(raw) > _STATUS_LIMIT or b"Status" not in raw:
        return status
    try:
        content = orjson.loads(raw)
    except orjson.JSONDecodeError:
        content = _from_yaml(raw)
    if not isinstance(content, dict) or content.get("kind") != "Status":
        return status
    out: dict[str, object] = {"metadata": {}}
    for name in ("status", "reason"):
        if content.get(name):
            out[name] = content[name]
    out["code"] = status["code"]
    return out


def _from_yaml(raw: bytes) -> Any:
    try:
        return codec.from_yaml(raw)
    except Exception:  # the client sent a body that cannot be decoded, and got an error
        return None
