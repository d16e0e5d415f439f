"""String formats of OpenAPI for custom resources. Unknown formats are not checked."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

from transom.kit.durations import is_duration
from transom.kit.lazy import lazy_pattern
from transom.machinery.validation.names import (
    is_dns1123_label,
    is_dns1123_subdomain,
    parse_cidr,
    parse_ip,
)
from transom.machinery.validation.urls import URLError, parse_url

_Check = Callable[[str], object]


def _matches(pattern: str, flags: int = 0) -> _Check:
    return lazy_pattern(pattern, re.ASCII | flags).fullmatch


_hostname = lazy_pattern(
    r"([a-zA-Z0-9\u00a1-\U0010ffff](-?[a-zA-Z0-9\u00a1-\U0010ffff]{0,62})?"
    r"|([a-zA-Z0-9\u00a1-\U0010ffff]([a-zA-Z0-9\u00a1-\U0010ffff-]{0,61}[a-zA-Z0-9\u00a1-\U0010ffff])?\.)+"
    r"[a-zA-Z\u00a1-\U0010ffff]{2,63})"
).fullmatch
_time = lazy_pattern(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))"
).fullmatch
_address = lazy_pattern(r"""[^\s<>@,;:"()\[\]\\]+@[^\s<>@,;:"()\\]+""")
_scala_part = lazy_pattern(r"(?<!\d)(\d++)\s*+([A-Za-zµ]+)")
_UNITS = (
    ("ns", "nano"),
    ("us", "µs", "micro"),
    ("ms", "milli"),
    ("s", "sec"),
    ("m", "min"),
    ("h", "hr", "hour"),
    ("d", "day"),
    ("w", "wk", "week"),
)
_card = lazy_pattern(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}"
).fullmatch
_uuid = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s-?[0-9a-f]{12}"


def _is_hostname(text: str) -> bool:
    return (
        bool(_hostname(text))
        and len(text.encode()) <= 255
        and all(len(part.encode()) <= 63 for part in text.split("."))
    )


def _is_date(text: str) -> bool:
    if len(text) != 10:
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    if len(text) < 4:
        return False
    day, separator, clock = text.lower().partition("t")
    found = _time(clock) if separator and _is_date(day) else None
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def _is_duration(text: str) -> bool:
    if is_duration(text):
        return True
    for _, unit in _scala_part.findall(text):
        low = unit.lower()
        if any(low in names or low.startswith(names[-1]) for names in _UNITS):
            return True
    return False


def _is_uri(text: str) -> bool:
    """A request URI: an absolute URL or an absolute path."""
    try:
        url = parse_url(text)
    except URLError:
        return False
    return bool(text) and (bool(url.scheme) or text.startswith("/"))


def _is_email(text: str) -> bool:
    bare = text.strip()
    if bare.endswith(">") and "<" in bare:
        bare = bare[bare.rindex("<") + 1 : -1]
    return bool(_address.fullmatch(bare)) and not bare.split("@")[0].startswith(".")


def _is_ip(version: int) -> _Check:
    def check(text: str) -> bool:
        # An IPv4-mapped address in IPv6 notation counts as IPv6.
        return parse_ip(text) is not None and (":" in text) == (version == 6)

    return check


def _is_mac(text: str) -> bool:
    for separator, width in ((":", 2), ("-", 2), (".", 4)):
        parts = text.split(separator)
        if len(parts) > 1:
            octets = len(parts) * width // 2
            return octets in (6, 8, 20) and all(
                re.fullmatch(f"[0-9A-Fa-f]{{{width}}}", part) for part in parts
            )
    return False


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return (
        sum((i + 1) * (10 if char == "X" else int(char)) for i, char in enumerate(digits)) % 11 == 0
    )


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum((3 if i % 2 else 1) * int(char) for i, char in enumerate(digits)) % 10 == 0


def _is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _card(digits):
        return False
    total = 0
    for i, char in enumerate(reversed(digits)):
        value = int(char) * (2 if i % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


_COLOR = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
CHECKS: dict[str, _Check] = {
    "bsonobjectid": _matches("[0-9a-fA-F]{24}"),
    "uri": _is_uri,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ip(4),
    "ipv6": _is_ip(6),
    "cidr": lambda text: parse_cidr(text) is not None,
    "mac": _is_mac,
    "uuid": _matches(_uuid % "[0-9a-f]{4}-?[0-9a-f]{4}", re.IGNORECASE),
    "uuid3": _matches(_uuid % "3[0-9a-f]{3}-?[0-9a-f]{4}", re.IGNORECASE),
    "uuid4": _matches(_uuid % "4[0-9a-f]{3}-?[89ab][0-9a-f]{3}", re.IGNORECASE),
    "uuid5": _matches(_uuid % "5[0-9a-f]{3}-?[89ab][0-9a-f]{3}", re.IGNORECASE),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _matches("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matches(rf"rgb\({_COLOR},{_COLOR},{_COLOR}\)"),
    "byte": _matches(
        r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
    ),
    "password": lambda text: True,
    "date": _is_date,
    "duration": _is_duration,
    "datetime": _is_date_time,
}


_NUMBERS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def is_known_format(kind: str, name: str, *, kubernetes_names: bool = False) -> bool:
    """Whether a server checks a format in schemas of this type."""
    if kind in ("", "string"):
        return format_check(name, kubernetes_names=kubernetes_names) is not None
    return name in _NUMBERS.get(kind, ())


# Names of Kubernetes, which newer releases know.
_NAME_CHECKS: dict[str, _Check] = {
    "k8sshortname": lambda text: not is_dns1123_label(text),
    "k8slongname": lambda text: not is_dns1123_subdomain(text),
}


def format_check(name: str, *, kubernetes_names: bool = False) -> _Check | None:
    """The check of a format; dashes in its name are ignored."""
    plain = name.replace("-", "")
    found = CHECKS.get(plain)
    return _NAME_CHECKS.get(plain) if found is None and kubernetes_names else found
