"""Small checks that several validators share: messages as field errors, amounts, addresses, enums."""

from __future__ import annotations

import binascii
from collections.abc import Collection, Iterable
from typing import Any

import orjson

from transom.machinery import gojson
from transom.machinery.field import (
    FieldError,
    NoNameError,
    invalid,
    not_supported,
    required,
    too_long,
)
from transom.machinery.integers import parse_int
from transom.machinery.quantity import ZERO, parse_quantity
from transom.machinery.validation.godump import dump_int_or_string
from transom.machinery.validation.names import (
    NEGATIVE,
    byte_len,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_valid_percent,
    is_valid_port_name,
    is_valid_port_num,
    parse_ip,
)

NOT_POSITIVE = "must be greater than zero"
PROTOCOLS = ("SCTP", "TCP", "UDP")


def check_each(path: str, value: Any, messages: Iterable[str]) -> list[FieldError]:
    return [invalid(path, value, text) for text in messages]


def dns_label(value: str, path: str) -> list[FieldError]:
    return [invalid(path, value, text) for text in is_dns1123_label(value)]


def dns_subdomain(value: str, path: str) -> list[FieldError]:
    return [invalid(path, value, text) for text in is_dns1123_subdomain(value)]


def csi_driver_name(name: str, path: str) -> list[FieldError]:
    if not name:
        texts = is_dns1123_subdomain("")
        return [required(path), *(NoNameError("Invalid", path, "", text) for text in texts)]
    errors = [too_long(path, name, 63)] if byte_len(name) > 63 else []
    return errors + check_each(path, name, is_dns1123_subdomain(name.lower()))


def one_of(
    value: str, path: str, supported: Collection[str], *, empty: str | None = ""
) -> list[FieldError]:
    """`empty` is the detail of the Required error for a missing value; None treats it like any
    other invalid value.
    """
    if value in supported:
        return []
    if not value and empty is not None:
        return [required(path, empty)]
    return [not_supported(path, value, tuple(supported))]


def nonnegative_quantity(value: str | int, path: str) -> list[FieldError]:
    amount = parse_quantity(value)
    return [invalid(path, str(amount), NEGATIVE)] if amount < ZERO else []


def positive_quantity(value: str | int, path: str) -> list[FieldError]:
    amount = parse_quantity(value)
    return [invalid(path, str(amount), NOT_POSITIVE)] if amount <= ZERO else []


def port_num_or_name(port: int | str, path: str) -> list[FieldError]:
    messages = is_valid_port_name(port) if isinstance(port, str) else is_valid_port_num(port)
    return check_each(path, port, messages)


def non_special_ip(text: str, path: str) -> list[FieldError]:
    ip = parse_ip(text)
    if ip is None:
        return [invalid(path, text, "must be a valid IP address")]
    errors = []
    if ip.is_unspecified:
        errors.append(invalid(path, text, "may not be unspecified (0.0.0.0)"))
    if ip.is_loopback:
        errors.append(invalid(path, text, "may not be in the loopback range (127.0.0.0/8)"))
    if ip.is_link_local:
        errors.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16)"))
    head = ip.packed
    if head[:3] == b"\xe0\0\0" if ip.version == 4 else head[0] == 0xFF and head[1] & 0x0F == 2:
        errors.append(
            invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24)")
        )
    return errors


def load_balancer_status(status: dict[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, ingress in enumerate(status.get("ingress") or ()):
        ip, hostname = ingress.get("ip"), ingress.get("hostname")
        if ip and parse_ip(ip) is None:
            errors.append(invalid(f"{path}.ingress[{i}].ip", ip, "must be a valid IP address"))
        if hostname:
            errors += dns_subdomain(hostname, f"{path}.ingress[{i}].hostname")
            if parse_ip(hostname) is not None:
                errors.append(
                    invalid(
                        f"{path}.ingress[{i}].hostname",
                        hostname,
                        "must be a DNS name, not an IP address",
                    )
                )
    return errors


def decoded_base64(text: str) -> bytes:
    """The bytes of a base64 field, which decoding has already validated."""
    return binascii.a2b_base64(text)


def decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text.count("=", -2) if text else 0


def token_lifetime(seconds: int, path: str) -> list[FieldError]:
    errors = []
    if seconds < 600:
        errors.append(invalid(path, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > 1 << 32:
        errors.append(invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"))
    return errors


def int_or_percent(value: int | str, path: str) -> list[FieldError]:
    """A count that is not negative, or a percentage up to a hundred."""
    if isinstance(value, int):
        return [invalid(path, value, NEGATIVE)] if value < 0 else []
    errors = check_each(path, dump_int_or_string(value), is_valid_percent(value))
    if not errors and parse_int(value[:-1]) > 100:
        errors.append(invalid(path, dump_int_or_string(value), "must not be greater than 100%"))
    return errors


_JSON_KINDS = {
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    dict: "object",
}


def parse_json(data: bytes, kind: type, go_type: str) -> tuple[Any, str]:
    """The JSON value of a text, or Go's error if it has another type; null is always valid."""
    problem = gojson.syntax_error(data)
    if problem:
        return None, problem
    value = orjson.loads(data)
    if value is None or isinstance(value, kind):
        return value, ""
    return (
        None,
        f"json: cannot unmarshal {_JSON_KINDS[type(value)]} into Go value of type {go_type}",
    )
