"""The Status that Kubernetes' client makes of an error response that does not explain itself
(NewGenericServerResponse).
"""

from __future__ import annotations

from typing import Final

from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple


class GenericServerResponse(NamedTuple):
    reason: str
    message: str


_RESPONSES: Final = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    409: ("Conflict", "the server reported a conflict"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: (
        "TooManyRequests",
        "the server has received too many requests and has asked us to try again later",
    ),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: (
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be "
        "processing the request",
    ),
}


# The server's message names the user and the action, or the accepted types.
_OWN_MESSAGE: Final = {403: "Forbidden", 406: "NotAcceptable", 415: "UnsupportedMediaType"}


def generic_server_response(code: int, server_message: str) -> GenericServerResponse:
    found = _RESPONSES.get(code)
    if found is not None:
        return GenericServerResponse(*found)
    if code in _OWN_MESSAGE:
        return GenericServerResponse(_OWN_MESSAGE[code], server_message)
    if code >= 500:
        return GenericServerResponse(
            "InternalError",
            f"an error on the server ({go_quote(server_message)}) has prevented the request from "
            "succeeding",
        )
    return GenericServerResponse(
        "",
        f"the server responded with the status code {code} but did not return more information",
    )
