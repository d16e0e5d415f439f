"""Who asks and how: the user and the circumstances of one request, handed down the whole chain.

The in-process client makes these too, so nothing here knows HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transom.apiserver.audit.event import AuditEvent


class User:
    """An authenticated identity. Immutable; one object serves many requests, so authorizers may cache on it."""

    __slots__ = ("extra", "groups", "name", "uid")

    def __init__(
        self, name: str, groups: tuple[str, ...] = (), uid: str = "", extra: Mapping[str, list[str]] | None = None
    ) -> None:
        self.name = name
        self.groups = groups
        self.uid = uid
        self.extra = dict(extra or {})

    def info(self) -> dict[str, Any]:
        """The UserInfo of reviews and audit events."""
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


REQUEST_SECONDS = 34.0  # unless the client says otherwise


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Context:
    """One request's circumstances. `warnings` collects what goes out as `Warning:` headers."""

    __slots__ = (
        "annotations", "audit", "body_annotations", "dry_run", "field_manager", "now", "path", "timeout", "user", "user_agent",
        "verb", "warnings",
    )

    def __init__(self, user: User, now: float, *, user_agent: str = "", field_manager: str = "", path: str = "") -> None:
        self.user = user
        self.now = now
        self.user_agent = user_agent
        self.field_manager = field_manager
        self.path = path
        self.verb = ""
        self.dry_run = False
        self.warnings: list[str] = []
        self.timeout = REQUEST_SECONDS  # how long the request may take, counted from `now`
        self.audit: AuditEvent | None = None  # where what happens is recorded
        self.annotations: dict[str, str] = {}  # audit annotations
        self.body_annotations: dict[str, str] = {}  # those that show parts of the body: only where bodies are logged

    @property
    def manager(self) -> str:
        """The field manager's name: given, or the first part of the user agent as Kubernetes takes it."""
        if self.field_manager:
            return self.field_manager
        return self.user_agent.split("/", 1)[0][:128] if self.user_agent else "unknown"

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
