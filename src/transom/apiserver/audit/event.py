"""One request on its way, as the audit log will tell it: Kubernetes' `audit.k8s.io/v1` Event, stage by stage.

The loop only notes what happens; what costs time (decoding bodies) is left to the log's thread.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from transom.apiserver.audit import redact
from transom.apiserver.audit.policy import METADATA, REQUEST, REQUEST_RESPONSE, Verdict
from transom.apiserver.context import Context, User
from transom.apiserver.requestinfo import RequestInfo
from transom.http.messages import Answer, Request, Response
from transom.kit.clock import rfc3339_micro
from transom.machinery import codec

_LEVEL_NAMES = ("None", "Metadata", "Request", "RequestResponse")
_LONGEST_AGENT = 1024
_STATUS_LIMIT = 64 * 1024  # a Status is never larger; lists are not decoded to find out what they are
_WRITING = frozenset(("create", "update", "patch", "delete", "deletecollection"))
_PROTOBUF = b"k8s\x00"

Write = Callable[[Callable[[], dict[str, object]], int], None]


class AuditEvent:
    __slots__ = (
        "_head", "_info", "_omit", "_ref", "_request", "_request_object", "_responded", "_verdict", "_write", "annotations",
        "audit_id", "impersonated", "panicked",
    )

    def __init__(
        self, write: Write, verdict: Verdict, audit_id: str, request: Request, user: User | None, info: RequestInfo,
        received: float,
    ) -> None:
        self._write = write
        self._verdict = verdict
        self._omit = verdict.omit
        self._info = info
        self._request = request
        self._request_object: bytes | None = None
        self._responded: tuple[dict[str, object], Response | None] | None = None
        self.audit_id = audit_id
        self.annotations: dict[str, str] = {}
        self.impersonated: User | None = None
        self.panicked = ""
        agent = request.header(b"user-agent")
        self._head: dict[str, object] = {
            "requestURI": redact.url(request.target.decode("latin-1")),
            "verb": info.verb,
            "user": {} if user is None else user.info(),
            "sourceIPs": source_ips(request),
            "userAgent": agent if len(agent) <= _LONGEST_AGENT else agent[:_LONGEST_AGENT] + "...TRUNCATED",
            "received": rfc3339_micro(received),
        }
        self._ref: dict[str, str] = {}
        if info.is_resource:
            self._ref = {
                "resource": info.resource, "namespace": info.namespace, "name": info.name, "apiGroup": info.group,
                "apiVersion": info.version, "subresource": info.subresource,
            }  # fmt: skip

    # ---- what the request meets on its way -----------------------------------------------------------------------

    def request_object(self, obj: Mapping[str, Any]) -> None:
        """The body as the server understood it, with defaults and before admission."""
        meta = obj.get("metadata") or {}
        for key, name in (("namespace", "namespace"), ("name", "name"), ("uid", "uid"), ("resourceVersion", "resourceVersion")):
            if not self._ref.get(key) and meta.get(name):
                self._ref[key] = meta[name]
        if self._verdict.level >= REQUEST:
            self._request_object = orjson.dumps(obj)

    def decided(self, allowed: bool, reason: str) -> None:
        self.annotations["authorization.k8s.io/decision"] = "allow" if allowed else "forbid"
        self.annotations["authorization.k8s.io/reason"] = reason

    # ---- stages --------------------------------------------------------------------------------------------------

    def emit(self, stage: str, now: float, ctx: Context | None = None) -> None:
        if stage in self._omit:
            return
        annotations = self.annotations
        if ctx is not None and (ctx.annotations or (ctx.body_annotations and self._verdict.level >= REQUEST)):
            more = ctx.body_annotations if self._verdict.level >= REQUEST else {}
            annotations = {**annotations, **ctx.annotations, **more}
        received = stage == "RequestReceived"
        moment = _Moment(self, stage, self._head["received"] if received else rfc3339_micro(now), dict(annotations))
        self._write(moment.line, moment.size)

    def answered(self, answer: Answer) -> None:
        """What the client gets; the next stages show it."""
        self._responded = (
            {"metadata": {}, "code": answer.status},
            answer if isinstance(answer, Response) else None,
        )

    @property
    def shows_answers(self) -> bool:
        return self._verdict.level >= REQUEST_RESPONSE

    @property
    def bodies(self) -> tuple[bytes | None, Response | None]:
        """What the thread is to decode, as far as the level allows."""
        request = self._request
        body = None
        if self._verdict.level >= REQUEST and self._info.verb in _WRITING and self._info.is_resource:
            body = self._request_object or request.body or None
        return body, None if self._responded is None else self._responded[1]


class _Moment:
    """One stage, with all that may change later taken down."""

    __slots__ = ("_annotations", "_body", "_event", "_impersonated", "_panicked", "_ref", "_response", "_stage", "_status",
                 "_time", "size")  # fmt: skip

    def __init__(self, event: AuditEvent, stage: str, time: object, annotations: dict[str, str]) -> None:
        self._event = event
        self._stage = stage
        self._time = time
        self._annotations = annotations
        self._ref = {key: value for key, value in event._ref.items() if value}
        self._impersonated = event.impersonated
        self._panicked = event.panicked
        self._status = None if event._responded is None else event._responded[0]
        self._body, self._response = event.bodies if stage != "RequestReceived" else (None, None)
        if self._response is not None and event._verdict.level < REQUEST_RESPONSE:
            size = 0
        else:
            size = 0 if self._response is None else _length(self._response.body)
        self.size = 2048 + size + (0 if self._body is None else len(self._body))

    def line(self) -> dict[str, object]:
        event = self._event
        level = event._verdict.level
        head = event._head
        out: dict[str, object] = {
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": _LEVEL_NAMES[level], "auditID": event.audit_id,
            "stage": self._stage, "requestURI": head["requestURI"], "verb": head["verb"], "user": head["user"],
        }  # fmt: skip
        if self._impersonated is not None:
            out["impersonatedUser"] = self._impersonated.info()
        for name in ("sourceIPs", "userAgent"):
            if head[name]:
                out[name] = head[name]
        if self._ref:
            out["objectRef"] = self._ref
        content = _content(self._response, level)
        if self._panicked:
            out["responseStatus"] = {
                "metadata": {}, "status": "Failure", "message": f"APIServer panic'd: {self._panicked}",
                "reason": "InternalError", "code": 500,
            }  # fmt: skip
        elif self._status is not None:
            out["responseStatus"] = _status(self._status, content)
        if level >= REQUEST and self._body is not None:
            body = _decode(self._body)
            if body is not None:
                out["requestObject"] = self._clean(body)
        if level >= REQUEST_RESPONSE and isinstance(content, dict) and "kind" in content and not self._panicked:
            out["responseObject"] = self._clean(content)
        out["requestReceivedTimestamp"] = head["received"]
        out["stageTimestamp"] = self._time
        if self._annotations:
            out["annotations"] = dict(sorted(self._annotations.items()))
        return out

    def _clean(self, value: Any) -> Any:
        info = self._event._info
        if (info.group, info.resource) == ("", "secrets"):
            value = redact.secret(value)
        return redact.managed_fields(value) if self._event._verdict.omit_managed_fields else value


def _length(body: bytes | list[bytes]) -> int:
    return sum(map(len, body)) if isinstance(body, list) else len(body)


def _content(response: Response | None, level: int) -> Any:
    """The decoded answer: all of it where it is recorded, else only what may be a Status."""
    if response is None or level < METADATA:
        return None
    body = response.body
    if level < REQUEST_RESPONSE and _length(body) > _STATUS_LIMIT:
        return None
    raw = b"".join(body) if isinstance(body, list) else body
    if level < REQUEST_RESPONSE and response.status < 400 and b"Status" not in raw[:64]:
        return None
    media = next((value for name, value in response.headers if name.lower() == b"content-type"), b"")
    if media.startswith((b"application/json", b"application/yaml")):
        return _decode(raw)
    return None


def _status(status: dict[str, object], content: Any) -> dict[str, object]:
    """Of a Status in the answer the bounded fields; the message may show what was asked for."""
    if not isinstance(content, dict) or content.get("kind") != "Status":
        return status
    out: dict[str, object] = {"metadata": {}}
    for name in ("status", "reason"):
        if content.get(name):
            out[name] = content[name]
    out["code"] = status["code"]
    return out


def _decode(raw: bytes) -> Any:
    """JSON or YAML as a value; None when it is neither."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        if raw.startswith(_PROTOBUF):
            return None
    try:
        return codec.from_yaml(raw)
    except Exception:  # the client sent something that nobody can read, and heard so
        return None


def source_ips(request: Request) -> list[str]:
    """Proxies name whom they speak for; the peer itself comes last."""
    found = [ip for part in request.header(b"x-forwarded-for").split(",") if (ip := _address(part.strip()))]
    real = _address(request.header(b"x-real-ip"))
    if real and real not in found:
        found.append(real)
    peer = _address(request.remote)
    if peer and (not found or found[-1] != peer):
        found.append(peer)
    return found


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError:
        return ""
