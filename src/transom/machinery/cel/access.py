"""The questions that expressions ask the authorizer. Does not load the CEL engine."""

from __future__ import annotations

from collections.abc import Callable

from transom.kit.named_tuple import NamedTuple


class AccessQuery(NamedTuple):
    """What an expression asks the authorizer. `service_account` is namespace and name of the account
    to check instead of the user of the request; `path` is set for a path that is not a resource.
    """

    verb: str = ""
    service_account: tuple[str, str] | None = None
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


class AccessDecision(NamedTuple):
    allowed: bool
    reason: str = ""
    error: str = ""


Authorize = Callable[[AccessQuery], AccessDecision]
