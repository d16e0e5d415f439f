"""The errors of the host networking service: codes, texts, and how a client library formats them.

An error of the service itself has the call, the code and the service's JSON. Some come from the
client library (an unknown name, an invalid identifier, a feature that the build lacks): those are a
plain sentence.
"""

from __future__ import annotations

from typing import Final

import orjson

NETWORK_NOT_FOUND: Final = 0x803B0001
ENDPOINT_NOT_FOUND: Final = 0x803B0002
SUBNET_NOT_FOUND: Final = 0x803B0005
ADAPTER_NOT_FOUND: Final = 0x803B0006
POLICY_NOT_FOUND: Final = 0x803B0008
INVALID_NETWORK: Final = 0x803B000A
INVALID_NETWORK_TYPE: Final = 0x803B000B
INVALID_ENDPOINT: Final = 0x803B000C
INVALID_POLICY: Final = 0x803B000D
INVALID_REMOTE_OPERATION: Final = 0x803B000F
NETWORK_EXISTS: Final = 0x803B0010
LAYER_EXISTS: Final = 0x803B0011
PORT_EXISTS: Final = 0x803B0013
ALREADY_ATTACHED: Final = 0x803B0014
REQUEST_UNSUPPORTED: Final = 0x803B0015
MAPPING_NOT_SUPPORTED: Final = 0x803B0016
BAD_GUID: Final = 0x803B0019
INVALID_JSON: Final = 0x803B001B
INVALID_REFERENCE: Final = 0x803B001C
INVALID_IP: Final = 0x803B001E
DEFAULT_NAMESPACE_EXISTS: Final = 0x803B0029
IN_A_NAMESPACE: Final = 0x803B002B
INVALID_INTERNAL_PORT: Final = 0x803B002D
BAD_ADDRESS: Final = 0x803B002F
INVALID_PREFIX: Final = 0x803B0030
BAD_PARAMETER: Final = 0x80070057
ELEMENT_NOT_FOUND: Final = 0x80070490
OBJECT_EXISTS: Final = 0x80071392
NOT_IMPLEMENTED: Final = 0x80004001
UNSPECIFIED: Final = 0x80004005
ACCESS_DENIED: Final = 0x80070005

TEXTS: Final[dict[int, str]] = {
    NETWORK_NOT_FOUND: "The network was not found.",
    ENDPOINT_NOT_FOUND: "The endpoint was not found.",
    SUBNET_NOT_FOUND: "The network does not have a subnet for this endpoint.",
    ADAPTER_NOT_FOUND: "An adapter was not found.",
    POLICY_NOT_FOUND: "An expected policy was not found.",
    INVALID_NETWORK: "The provided network configuration is invalid or missing parameters.",
    INVALID_NETWORK_TYPE: "Invalid network type.",
    INVALID_ENDPOINT: "The provided endpoint configuration is invalid or missing parameters.",
    INVALID_POLICY: "The provided policy configuration is invalid or missing parameters.",
    INVALID_REMOTE_OPERATION: "This requested operation is invalid for a remote endpoint.",
    NETWORK_EXISTS: "A network with this name already exists.",
    LAYER_EXISTS: "A network with this name already exists.",
    PORT_EXISTS: "The specified port already exists.",
    ALREADY_ATTACHED: "This endpoint is already attached to the switch.",
    REQUEST_UNSUPPORTED: "The specified request is unsupported.",
    MAPPING_NOT_SUPPORTED: "Port mapping is not supported on the given network.",
    BAD_GUID: "Failed to interpret a parameter as a GUID.",
    INVALID_JSON: "Invalid JSON document string.",
    INVALID_REFERENCE: "The reference is invalid in the JSON document.",
    INVALID_IP: "IP address is either invalid or not part of any configured subnet(s).",
    DEFAULT_NAMESPACE_EXISTS: "Default Namespace already exists.",
    IN_A_NAMESPACE: "This requested operation is invalid as endpoint is already part of a network namespace.",
    INVALID_PREFIX: "The prefix provided is invalid.",
    INVALID_INTERNAL_PORT: "The internal port must exist and cannot be zero.",
    BAD_ADDRESS: "An address provided is invalid or reserved.",
    BAD_PARAMETER: "The parameter is incorrect.",
    ELEMENT_NOT_FOUND: "Element not found.",
    OBJECT_EXISTS: "The object already exists.",
    NOT_IMPLEMENTED: "Not implemented",
    UNSPECIFIED: "Unspecified error",
    ACCESS_DENIED: "Access is denied.",
}
NOT_FOUND: Final = frozenset({NETWORK_NOT_FOUND, ENDPOINT_NOT_FOUND, ELEMENT_NOT_FOUND})


class HnsError(Exception):
    """`text` is the whole message as a client of hcsshim sees it, `code` the HRESULT (0 for errors
    of the client library).
    """

    def __init__(self, code: int, detail: str = "", *, call: str = "", plain: str = "") -> None:
        self.code = code
        self.detail = detail  # what the service appends to the text of the code
        self.call = call  # "hcnCreateEndpoint"; set by the caller. Empty: a v1 request
        self.plain = plain
        super().__init__(code, detail)

    @property
    def message(self) -> str:
        """The service's own text, without the call: a v1 response's Error. The blank before the
        detail is always there.
        """
        return self.plain or f"{TEXTS.get(self.code, TEXTS[UNSPECIFIED])} {self.detail}"

    @property
    def text(self) -> str:
        if self.plain:
            return self.plain
        if not self.call and self.not_found:
            return f"hns failed with error : {self.message}"
        win32 = self.code & 0xFFFF if self.code & 0x1FFF0000 == 0x00070000 else self.code
        failed = f"failed in Win32: {TEXTS.get(self.code, TEXTS[UNSPECIFIED])} (0x{win32:x})"
        if not self.call:
            return f"failed during hnsCallRawResponse: hnsCall {failed}"
        answer = orjson.dumps(
            {"Success": False, "Error": self.message, "ErrorCode": self.code}
        ).decode()
        return f"{self.call} {failed} {answer}"

    @property
    def not_found(self) -> bool:
        return self.code in NOT_FOUND

    def __str__(self) -> str:
        return self.text


def client_library_error(text: str, code: int = 0) -> HnsError:
    """An error of the client library, without a call to the service."""
    return HnsError(code, plain=text)


def unsupported_feature(feature: str) -> HnsError:
    return client_library_error(f"platform does not support feature {feature}")


_MISSING: Final = {
    "network": 'Network ID "{}" not found',
    "endpoint": 'Endpoint ID "{}" not found',
    "namespace": 'Namespace ID "{}" not found',
    "loadbalancer": 'LoadBalancer "{}" not found',
    "route": 'SDN Route "{}" not found',
}
_INVALID: Final = {
    "network": "invalid network ID",
    "endpoint": "invalid endpoint ID",
    "namespace": "invalid namespace ID",
    "loadbalancer": "invalid load balancer ID",
    "route": "invalid route ID",
}
_GONE: Final = {"network": NETWORK_NOT_FOUND, "endpoint": ENDPOINT_NOT_FOUND}


def id_not_found(kind: str, identifier: str) -> HnsError:
    return client_library_error(_MISSING[kind].format(identifier), ELEMENT_NOT_FOUND)


def name_not_found(kind: str, name: str) -> HnsError:
    """For callers that look up a network or an endpoint by name."""
    return client_library_error(f'{kind.capitalize()} name "{name}" not found', ELEMENT_NOT_FOUND)


def invalid_id(kind: str) -> HnsError:
    return client_library_error(_INVALID[kind], BAD_GUID)


def unknown_identifier(kind: str) -> HnsError:
    """The service's own text for an unknown identifier."""
    return HnsError(_GONE.get(kind, ELEMENT_NOT_FOUND))
