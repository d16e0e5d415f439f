"""Rules for names and values: each returns a list of Kubernetes' messages, empty for a valid value.

Independent of fields and kinds. Lengths are counted in bytes, as the API counts them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

NameRule = Callable[[str, bool], list[str]]
"""A rule for `metadata.name`; the flag means that the text is a prefix (`generateName`)."""

DNS1123_SUBDOMAIN_MAX = 253
IMMUTABLE = "field is immutable"
NEGATIVE = "must be greater than or equal to 0"

_QNAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QNAME})?"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_WILDCARD = rf"\*\.{_SUBDOMAIN}"
_C_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_PERCENT = "[0-9]+%"
_HEADER = "[-A-Za-z0-9]+"
_ENV = "[-._a-zA-Z][-._a-zA-Z0-9]*"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_CONDITION_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"


def max_len_error(limit: int) -> str:
    return f"must be no more than {limit} characters"


def range_error(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def regex_error(text: str, pattern: str, *examples: str) -> str:
    if not examples:
        return f"{text} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


_ALNUM = "and must start and end with an alphanumeric character"
_QNAME_ERROR = regex_error(
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ALNUM}",
    _QNAME,
    "MyName",
    "my.name",
    "123-abc",
)
_LABEL_VALUE_ERROR = regex_error(
    (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' "
        f"or '.', {_ALNUM}"
    ),
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_LABEL_ERROR = regex_error(
    (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        f"{_ALNUM}"
    ),
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_ERROR = regex_error(
    (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' "
        f"or '.', {_ALNUM}"
    ),
    _SUBDOMAIN,
    "example.com",
)
_LABEL_1035_ERROR = regex_error(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with "
    "an alphabetic character, "
    "and end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_WILDCARD_ERROR = regex_error(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, "
    "which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    _WILDCARD,
    "*.example.com",
)
_C_IDENTIFIER_ERROR = regex_error(
    "a valid C identifier must start with alphabetic character or '_', followed by a string "
    "of alphanumeric "
    "characters or '_'",
    _C_IDENTIFIER,
    "my_name",
    "MY_NAME",
    "MyName",
)
_PERCENT_ERROR = regex_error(
    "a valid percent string must be a numeric string followed by an ending '%'",
    _PERCENT,
    "1%",
    "93%",
)
_HEADER_ERROR = regex_error(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"
)
_ENV_ERROR = regex_error(
    "a valid environment variable name must consist of alphabetic characters, digits, '_', "
    "'-', or '.', and must not "
    "start with a digit",
    _ENV,
    "my.env-name",
    "MY_ENV.NAME",
    "MyEnvName1",
)
_CONFIG_KEY_ERROR = regex_error(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_CONDITION_REASON_ERROR = regex_error(
    "a condition reason must start with alphabetic character, optionally followed by a "
    "string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'",
    _CONDITION_REASON,
    "my_name",
    "MY_NAME",
    "MyName",
    "ReasonA,ReasonB",
    "ReasonA:ReasonB",
)
_IP_ERROR = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"

_match_qname = re.compile(_QNAME).fullmatch
_match_label_value = re.compile(_LABEL_VALUE).fullmatch
_match_label = re.compile(_LABEL).fullmatch
_match_subdomain = re.compile(_SUBDOMAIN).fullmatch
_match_label_1035 = re.compile(_LABEL_1035).fullmatch
_match_wildcard = re.compile(_WILDCARD).fullmatch
_match_c_identifier = re.compile(_C_IDENTIFIER).fullmatch
_match_percent = re.compile(_PERCENT).fullmatch
_match_header = re.compile(_HEADER).fullmatch
_match_env = re.compile(_ENV).fullmatch
_match_config_key = re.compile(_CONFIG_KEY).fullmatch
_match_http_path = re.compile(_HTTP_PATH).fullmatch
_match_condition_reason = re.compile(_CONDITION_REASON).fullmatch
_match_port_charset = re.compile("[-a-z0-9]+").fullmatch
_search_letter = re.compile("[a-z]").search
# Go parses leading zeros of an address as decimal; Python rejects them, so they are removed first.
_LEADING_ZEROS = re.compile(r"(?<![0-9a-fA-F])0+(?=[0-9a-fA-F])")

_Match = Callable[[str], object]


def byte_len(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _shape(value: str, match: _Match, error: str, limit: int) -> list[str]:
    # all patterns here are ASCII, so a match settles the length in bytes
    if len(value) <= limit and match(value):
        return []
    errors = [max_len_error(limit)] if byte_len(value) > limit else []
    if not match(value):
        errors.append(error)
    return errors


def is_dns1123_label(value: str) -> list[str]:
    return _shape(value, _match_label, _LABEL_ERROR, 63)


def is_dns1123_subdomain(value: str) -> list[str]:
    return _shape(value, _match_subdomain, _SUBDOMAIN_ERROR, DNS1123_SUBDOMAIN_MAX)


def is_dns1035_label(value: str) -> list[str]:
    return _shape(value, _match_label_1035, _LABEL_1035_ERROR, 63)


def is_wildcard_dns1123_subdomain(value: str) -> list[str]:
    return _shape(value, _match_wildcard, _WILDCARD_ERROR, DNS1123_SUBDOMAIN_MAX)


class LabelLength(str):
    """The error for a label value that is too long: its wording changed, that of names did not."""


def is_label_value(value: str) -> list[str]:
    errors = _shape(value, _match_label_value, _LABEL_VALUE_ERROR, 63)
    return [LabelLength(e) if e == max_len_error(63) else e for e in errors] if errors else errors


def is_qualified_name(value: str) -> list[str]:
    errors: list[str] = []
    prefix, slash, name = value.rpartition("/")
    if slash:
        if "/" in prefix:
            return [
                f"a qualified name {_QNAME_ERROR} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ]
        if not prefix:
            errors.append("prefix part must be non-empty")
        else:
            errors += [f"prefix part {text}" for text in is_dns1123_subdomain(prefix)]
    if len(name) <= 63 and _match_qname(name):
        return errors
    if not name:
        errors.append("name part must be non-empty")
    elif byte_len(name) > 63:
        errors.append(f"name part {max_len_error(63)}")
    if not _match_qname(name):
        errors.append(f"name part {_QNAME_ERROR}")
    return errors


def is_cidentifier(value: str) -> list[str]:
    return [] if _match_c_identifier(value) else [_C_IDENTIFIER_ERROR]


def is_valid_percent(value: str) -> list[str]:
    return [] if _match_percent(value) else [_PERCENT_ERROR]


def is_http_header_name(value: str) -> list[str]:
    return [] if _match_header(value) else [_HEADER_ERROR]


def is_condition_reason(value: str) -> list[str]:
    return [] if _match_condition_reason(value) else [_CONDITION_REASON_ERROR]


def _change_dir(value: str) -> list[str]:
    if not value.startswith("."):
        return []
    if value in (".", ".."):
        return [f"must not be '{value}'"]
    return ["must not start with '..'"] if value.startswith("..") else []


def is_env_var_name(value: str) -> list[str]:
    errors = [] if _match_env(value) else [_ENV_ERROR]
    return errors + _change_dir(value)


_RELAXED_ENV_ERROR = (
    "a valid environment variable name must consist only of printable ASCII characters other than "
    "'='"
)
_match_relaxed_env = re.compile("[ -<>-~]*").fullmatch


def is_relaxed_env_var_name(value: str) -> list[str]:
    """The rule for names of variables since 1.32."""
    if not value:
        return ["environment variable name must be non-empty"]
    return [] if _match_relaxed_env(value) else [_RELAXED_ENV_ERROR]


_SEARCH_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH = rf"{_SEARCH_LABEL}(\.{_SEARCH_LABEL})*"
_SEARCH_ERROR = regex_error(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' "
    f"or '.', {_ALNUM}",
    _SEARCH,
    "example.com",
)
_match_search = re.compile(_SEARCH).fullmatch


def is_dns1123_subdomain_with_underscore(value: str) -> list[str]:
    return _shape(value, _match_search, _SEARCH_ERROR, DNS1123_SUBDOMAIN_MAX)


def is_config_map_key(value: str) -> list[str]:
    return _shape(value, _match_config_key, _CONFIG_KEY_ERROR, DNS1123_SUBDOMAIN_MAX) + _change_dir(
        value
    )


def is_in_range(value: int, low: int, high: int) -> list[str]:
    return [] if low <= value <= high else [range_error(low, high)]


def is_valid_port_num(port: int) -> list[str]:
    return is_in_range(port, 1, 65535)


def is_valid_user_id(uid: int) -> list[str]:
    return is_in_range(uid, 0, 2**31 - 1)


is_valid_group_id = is_valid_user_id


def is_valid_port_name(port: str) -> list[str]:
    errors = [max_len_error(15)] if byte_len(port) > 15 else []
    if not _match_port_charset(port):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _search_letter(port):
        errors.append("must contain at least one letter or number (a-z, 0-9)")
    if "--" in port:
        errors.append("must not contain consecutive hyphens")
    if port and (port[0] == "-" or port[-1] == "-"):
        errors.append("must not begin or end with a hyphen")
    return errors


IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_ip(value: str) -> IPAddress | None:
    """The address; an IPv4-mapped IPv6 address counts as IPv4."""
    if "%" in value or not value.isascii():
        return None
    try:
        ip = ipaddress.ip_address(_LEADING_ZEROS.sub("", value))
    except ValueError:
        return None
    return ip.ipv4_mapped or ip if isinstance(ip, ipaddress.IPv6Address) else ip


def is_ipv6(value: str) -> bool:
    ip = parse_ip(value)
    return ip is not None and ip.version == 6


IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_cidr(value: str) -> tuple[IPAddress, IPNetwork] | None:
    """The address as written and its network."""
    address, slash, bits = value.partition("/")
    if (
        not slash
        or not bits.isascii()
        or not bits.isdecimal()
        or "%" in address
        or not address.isascii()
    ):
        return None
    try:
        ip = ipaddress.ip_address(_LEADING_ZEROS.sub("", address))
        network = ipaddress.ip_network(f"{ip}/{int(bits)}", strict=False)
    except ValueError:
        return None
    return ip, network


def is_valid_ip(value: str) -> list[str]:
    return [_IP_ERROR] if parse_ip(value) is None else []


def is_valid_ipv4_address(value: str) -> list[str]:
    ip = parse_ip(value)
    return [] if ip is not None and ip.version == 4 else ["must be a valid IPv4 address"]


def is_valid_ipv6_address(value: str) -> list[str]:
    ip = parse_ip(value)
    return [] if ip is not None and ip.version == 6 else ["must be a valid IPv6 address"]


def is_cidr(value: str) -> list[str]:
    if parse_cidr(value) is None:
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    return []


def is_fully_qualified_name(value: str) -> list[str]:
    """At least three segments. The caller reports an empty name as `Required`."""
    errors = is_dns1123_subdomain(value)
    if errors:
        return [",".join(errors)]
    if value.count(".") < 2:
        return ["should be a domain with at least three segments separated by dots"]
    return []


def domain_prefixed_path(value: str) -> list[tuple[str, str]]:
    """Rules of `acme.io/foo` as pairs of the invalid part and its message. The caller reports an
    empty value as `Required`.
    """
    host, _, path = value.partition("/")
    if not host or not path:
        return [(value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = [(host, text) for text in is_dns1123_subdomain(host)]
    if not _match_http_path(path):
        errors.append((path, regex_error("Invalid path", _HTTP_PATH)))
    return errors


def is_plain_segment(name: str) -> bool:
    """Whether `is_path_segment_name` surely accepts the name: it is made of letters, digits and
    dashes.
    """
    return name.replace("-", "a").isalnum()


def is_path_segment_prefix(name: str) -> list[str]:
    return [f"may not contain '{text}'" for text in ("/", "%") if text in name]


def is_path_segment_name(name: str) -> list[str]:
    return [f"may not be '{name}'"] if name in (".", "..") else is_path_segment_prefix(name)


def _unfinished(name: str) -> str:
    """A prefix may end in a dash: the generated suffix makes it valid."""
    return name[: max(len(name) - 2, 0)] + "a" if name.endswith("-") else name


def name_is_dns_subdomain(name: str, prefix: bool) -> list[str]:
    return is_dns1123_subdomain(_unfinished(name) if prefix else name)


def name_is_dns_label(name: str, prefix: bool) -> list[str]:
    return is_dns1123_label(_unfinished(name) if prefix else name)


def name_is_dns1035_label(name: str, prefix: bool) -> list[str]:
    return is_dns1035_label(_unfinished(name) if prefix else name)


def name_is_path_segment(name: str, prefix: bool) -> list[str]:
    return is_path_segment_prefix(name) if prefix else is_path_segment_name(name)


def any_name(name: str, prefix: bool) -> list[str]:
    return []
