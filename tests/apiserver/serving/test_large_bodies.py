"""Whether a client may send a large body is decided by the headers of the request."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import ADMIN, start

from transom.http.messages import HttpRequest, HttpResponse, PeerCertificate

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("peer", "headers", "owner", "code"),
    [
        (ADMIN, {}, "admin", 400),
        (None, {}, None, 403),
        (PeerCertificate("jane", []), {}, None, 403),
        (ADMIN, {b"impersonate-user": b"jane"}, None, 403),
        (PeerCertificate("jane", []), {b"impersonate-user": b"admin"}, None, 403),
        (None, {b"authorization": b"Bearer forged"}, None, 401),
    ],
)
async def test_a_body_is_read_only_from_clients_that_may_send_it(
    peer: PeerCertificate | None, headers: dict[bytes, bytes], owner: str | None, code: int
) -> None:
    api = await start()
    head = HttpRequest(
        "POST",
        PODS.encode(),
        PODS,
        {b"content-type": b"application/json", **headers},
        b"",
        peer,
    )
    assert api.server.handler.body_owner(head) == owner
    answer: Any = api.server.handler(head)
    answer = await answer if hasattr(answer, "__await__") else answer
    assert isinstance(answer, HttpResponse)
    assert answer.status == code  # what is answered without the body
