"""Decisions of the API server are remembered for exactly the user that it was asked about."""

from __future__ import annotations

from typing import Any

import pytest

from transom.http.messages import HttpRequest
from transom.kit.clock import VirtualClock
from transom.kubelet.server.answers import HttpFailure
from transom.kubelet.server.auth import KubeletAuth

USERS: dict[str, Any] = {
    "owner": {"username": "jane", "uid": "1", "extra": {"scopes": ["admin"]}},
    "scoped": {"username": "jane", "uid": "1", "extra": {"scopes": ["read"]}},
    "namesake": {"username": "jane", "uid": "2", "extra": {"scopes": ["admin"]}},
}


class ScopedReviews:
    """An API server whose authorizer looks at the uid and at extra fields, as a webhook can."""

    def __init__(self) -> None:
        self.reviews = 0

    async def create(self, resource: Any, namespace: str, obj: dict[str, Any]) -> Any:
        spec = obj["spec"]
        if obj["kind"] == "TokenReview":
            return {"status": {"authenticated": True, "user": USERS[spec["token"]]}}
        self.reviews += 1
        return {
            "status": {"allowed": spec["extra"] == {"scopes": ["admin"]} and spec["uid"] == "1"}
        }


@pytest.mark.parametrize("other", ["scoped", "namesake"])
async def test_a_decision_about_one_user_is_not_used_for_another(other: str) -> None:
    api = ScopedReviews()
    auth = KubeletAuth(api, VirtualClock(), "n1", anonymous=False)  # type: ignore[arg-type]

    async def ask(token: str) -> None:
        headers = {b"authorization": f"Bearer {token}".encode()}
        await auth.check(HttpRequest("GET", b"/pods", "/pods", headers))

    await ask("owner")
    await ask("owner")
    assert api.reviews == 1
    with pytest.raises(HttpFailure, match="Forbidden"):
        await ask(other)
    await ask("owner")
    assert api.reviews == 2
