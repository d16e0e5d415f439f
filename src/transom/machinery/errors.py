"""API errors: every failure a client can see is an `ApiError` that carries a Kubernetes `Status`.

Messages, reasons and codes are part of the API (client libraries branch on them), so they are
defined in one place. This module does not depend on HTTP, except for the status code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery.field import OMITTED, FieldError, aggregate_text
from transom.machinery.objects import TooDeep


class GroupResource(NamedTuple):
    """A resource (or, in validation errors, a kind) and its group, printed as Kubernetes prints it:
    `deployments.apps`.
    """

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class ApiError(Exception):
    """An error response. `status()` is the Status object, `headers` are sent with it."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        continue_token: str = "",
    ) -> None:
        """`continue_token`: continues an expired list from the newest state."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.continue_token = continue_token
        self.headers = dict(headers or {})

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
        }
        if self.message:
            body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        body["code"] = self.code
        return body


def _details(gr: GroupResource, name: str, **more: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if name:
        out["name"] = name
    if gr.group:
        out["group"] = gr.group
    if gr.resource:
        out["kind"] = gr.resource
    out.update({k: v for k, v in more.items() if v})
    return out


def not_found(gr: GroupResource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{gr} "{name}" not found', _details(gr, name))


def already_exists(gr: GroupResource, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{gr} "{name}" already exists', _details(gr, name))


def generated_name_taken(gr: GroupResource, name: str) -> ApiError:
    text = "already exists, the server was not able to generate a unique name for the object"
    details = _details(gr, name, retryAfterSeconds=1)
    return ApiError(409, "AlreadyExists", f'{gr} "{name}" {text}', details)


def conflict(gr: GroupResource, name: str, why: str) -> ApiError:
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {gr} "{name}": {why}',
        _details(gr, name),
    )


def apply_conflict(causes: list[dict[str, str]], message: str) -> ApiError:
    return ApiError(409, "Conflict", message, {"causes": causes} if causes else {})


def gone(message: str) -> ApiError:
    return ApiError(410, "Gone", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(gr: GroupResource, name: str, why: str) -> ApiError:
    if gr.resource or gr.group:
        text = f"{gr} {go_quote(name)} is forbidden: {why}" if name else f"{gr} is forbidden: {why}"
    else:
        text = f"forbidden: {why}"
    return ApiError(403, "Forbidden", text, _details(gr, name))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def nested_too_deeply() -> ApiError:
    return bad_request(f"the object is nested too deeply: {TooDeep()}")


# Of one request, in characters. Kubernetes has no limit; three bytes of a body can cause an error
# of hundreds of bytes.
_MAX_INVALID_TEXT = 2 * 1024 * 1024


def invalid(gk: GroupResource, name: str, errors: Iterable[FieldError]) -> ApiError:
    """422: `gk` is the group and *kind*; the message aggregates all field errors, the causes list
    each one.
    """
    found = list(errors)
    errors = [e for e in found if e is not OMITTED]
    causes: list[dict[str, str]] = []
    size = 0
    for e in errors:
        if size > _MAX_INVALID_TEXT:
            break
        causes.append({"reason": e.reason, "message": e.body(), "field": e.field})
        size += len(causes[-1]["message"]) + len(e.field)
    details = _details(gk, name)
    if causes:
        details["causes"] = causes
    text = f"{gk} {go_quote(name)} is invalid"
    if errors:
        text += f": {aggregate_text(errors[: len(causes)])}"
    if len(causes) < len(found):
        text += f" (and {len(found) - len(causes)} more errors)"
    return ApiError(422, "Invalid", text, details)


def method_not_supported(gr: GroupResource, action: str) -> ApiError:
    return ApiError(
        405,
        "MethodNotAllowed",
        f"{action} is not supported on resources of kind {str(gr)!r}".replace("'", '"'),
        _details(gr, ""),
    )


def generic_not_found() -> ApiError:
    """No such resource under a known group version."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def generic_method_not_allowed() -> ApiError:
    return ApiError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        {},
    )


def not_acceptable(available: str = "") -> ApiError:
    """`available`: the media types, which later releases list."""
    text = f"\n\nAvailable representations: {available}" if available else ""
    return ApiError(406, "NotAcceptable", f"406: Not Acceptable{text}", {})


def no_such_form(accepted: str) -> ApiError:
    return ApiError(
        406, "NotAcceptable", f"only the following media types are accepted: {accepted}"
    )


def unsupported_media_type(message: str, details: Mapping[str, Any] | None = None) -> ApiError:
    return ApiError(415, "UnsupportedMediaType", message, details)


def too_large(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def too_many_requests(
    message: str, retry_after: int = 0, details: Mapping[str, Any] | None = None
) -> ApiError:
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return ApiError(429, "TooManyRequests", message, details, headers)


def internal(message: str) -> ApiError:
    text = f"Internal error occurred: {message}"
    return ApiError(500, "InternalError", text, {"causes": [{"message": message}]})


def service_unavailable(message: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message)


def server_timeout(kind: GroupResource, operation: str) -> ApiError:
    text = f"The {operation} operation against {kind} could not be completed at this time"
    return ApiError(500, "ServerTimeout", f"{text}, please try again.", _details(kind, operation))


def timeout(
    message: str, retry_after: int = 0, causes: list[dict[str, str]] | None = None
) -> ApiError:
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = causes
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return ApiError(504, "Timeout", message, details, headers)
