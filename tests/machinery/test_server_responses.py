"""What Kubernetes' client reports for a response without a Status."""

from __future__ import annotations

import pytest

from transom.machinery.server_responses import generic_server_response


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (400, "BadRequest", "the server rejected our request for an unknown reason"),
        (401, "Unauthorized", "the server has asked for the client to provide credentials"),
        (403, "Forbidden", 'a "b"'),
        (404, "NotFound", "the server could not find the requested resource"),
        (409, "Conflict", "the server reported a conflict"),
        (
            500,
            "InternalError",
            'an error on the server ("a \\"b\\"") has prevented the request from succeeding',
        ),
        (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
        (
            504,
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be "
            "processing the request",
        ),
        (
            418,
            "",
            "the server responded with the status code 418 but did not return more information",
        ),
    ],
)
def test_generic_server_response(code: int, reason: str, message: str) -> None:
    assert generic_server_response(code, 'a "b"') == (reason, message)
