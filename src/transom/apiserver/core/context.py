"""The request context: the user and the options of one request.

The in-process client creates these too, so this module does not depend on HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from transom.machinery.managedfields import UNKNOWN, manager_from_user_agent


class UserInfo:
    """An authenticated identity. Immutable and shared by many requests, so authorizers may cache on
    it.
    """

    __slots__ = ("extra", "groups", "name", "uid")

    def __init__(
        self,
        name: str,
        groups: tuple[str, ...] = (),
        uid: str = "",
        extra: Mapping[str, list[str]] | None = None,
    ) -> None:
        self.name = name
        self.groups = groups
        self.uid = uid
        self.extra = dict(extra or {})

    def info(self) -> dict[str, Any]:
        """The UserInfo in reviews and audit events."""
        out: dict[str, Any] = {}
        if self.name:
            out["username"] = self.name
        if self.uid:
            out["uid"] = self.uid
        if self.groups:
            out["groups"] = list(self.groups)
        if self.extra:
            out["extra"] = self.extra
        return out

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.groups!r})"


REQUEST_SECONDS = 34.0  # unless the client sets it


ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))


class AuditRecord(Protocol):
    """What verbs record in the audit event of their request."""

    def request_object(self, obj: Mapping[str, Any]) -> None:
        """The decoded body, with defaults and before admission."""


class RequestContext:
    """The context of one request. `warnings` are returned as `Warning:` headers."""

    verb = ""
    dry_run = False
    applying = False  # a server-side apply, which keeps its managed fields whatever their size
    # the body or the stored object is large: its processing runs in the worker thread
    large = False
    timeout = REQUEST_SECONDS  # the timeout of the request, counted from `now`
    audit: AuditRecord | None = None  # the audit event
    # Raises 403 unless the user may create the object that this update would create; None:
    # nothing is created.
    authorize_create: Callable[[], None] | None = None

    def __init__(
        self,
        user: UserInfo,
        now: float,
        *,
        user_agent: str = "",
        field_manager: str = "",
        path: str = "",
    ) -> None:
        self.user = user
        self.now = now
        self.user_agent = user_agent
        self.field_manager = field_manager
        self.path = path
        self.warnings: dict[str, None] = {}  # in order, without duplicates
        self.annotations: dict[str, str] = {}  # audit annotations
        # annotations with parts of the body: only if bodies are logged
        self.body_annotations: dict[str, str] = {}

    @property
    def manager(self) -> str:
        """The field manager: as given, or the first part of the user agent, as in Kubernetes."""
        return self.field_manager or manager_from_user_agent(self.user_agent) or UNKNOWN

    def warn(self, text: str) -> None:
        self.warnings[text] = None
