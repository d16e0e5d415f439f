"""Kubernetes' functions on strings: regular expressions, URLs, named formats, JSON-patch keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from transom.kit.cel.errors import CelError
from transom.kit.cel.functions import Function, Overload
from transom.kit.cel.types import CelType, struct_type
from transom.kit.cel.values import NONE, Opaque, Optional
from transom.kit.regexp import Regexp, RegexpError, compile_regexp
from transom.machinery.validation.formats import format_check
from transom.machinery.validation.names import (
    is_label_value,
    is_qualified_name,
    name_is_dns1035_label,
    name_is_dns_label,
    name_is_dns_subdomain,
)
from transom.machinery.validation.urls import URLError, parse_url

URL_TYPE = struct_type("kubernetes.URL")
FORMAT_TYPE = struct_type("kubernetes.NamedFormat")


def _regexp(pattern: str) -> Regexp:
    try:
        return compile_regexp(pattern)
    except RegexpError as error:
        raise CelError(f"Illegal regex: {error}") from None


class Url(Opaque):
    __slots__ = ("parts", "text")
    cel_type: CelType = URL_TYPE

    def __init__(self, text: str) -> None:
        try:
            self.parts = parse_url(text)
        except URLError as error:
            raise CelError(f"URL parse error during conversion from string: {error}") from None
        if not (self.parts.scheme or text.startswith("/")):
            raise CelError(
                f'URL parse error during conversion from string: parse "{text}": invalid URI '
                "for request"
            )
        self.text = text

    def equals(self, other: Any) -> bool:
        return bool(self.text == other.text)

    def hostname(self) -> str:
        host = self.parts.host
        return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]

    def port(self) -> str:
        return self.parts.host.rpartition("]")[2].partition(":")[2]

    def path(self) -> str:
        rest = self.text.partition("?")[0]
        after = rest.partition("://")[2] if "://" in rest else rest
        slash = after.find("/")
        return after[slash:] if slash >= 0 else ""


def _is_url(text: str) -> bool:
    try:
        Url(text)
    except CelError:
        return False
    return True


def _query(url: Url) -> dict[str, list[str]]:
    return parse_qs(url.parts.query, keep_blank_values=True)


class NamedFormat(Opaque):
    __slots__ = ("check", "name", "regex_size")
    cel_type: CelType = FORMAT_TYPE

    def __init__(self, name: str, regex_size: int, check: Callable[[str], list[str]]) -> None:
        self.name, self.regex_size, self.check = name, regex_size, check

    def equals(self, other: Any) -> bool:
        return bool(self.name == other.name)


def _openapi(name: str, error: str) -> Callable[[str], list[str]]:
    def check(text: str) -> list[str]:
        found = format_check(name)
        return [] if found is not None and found(text) else [error]

    return check


def _uri(text: str) -> list[str]:
    try:
        Url(text)
    except CelError as error:
        return [str(error).partition("from string: ")[2]]
    return []


FORMATS: dict[str, NamedFormat] = {
    name: NamedFormat(shown, size, check)
    for name, shown, size, check in (
        ("dns1123Label", "DNS1123Label", 30, lambda s: name_is_dns_label(s, False)),
        ("dns1123Subdomain", "DNS1123Subdomain", 60, lambda s: name_is_dns_subdomain(s, False)),
        ("dns1035Label", "DNS1035Label", 30, lambda s: name_is_dns1035_label(s, False)),
        ("qualifiedName", "QualifiedName", 60, is_qualified_name),
        ("dns1123LabelPrefix", "DNS1123LabelPrefix", 30, lambda s: name_is_dns_label(s, True)),
        (
            "dns1123SubdomainPrefix",
            "DNS1123SubdomainPrefix",
            60,
            lambda s: name_is_dns_subdomain(s, True),
        ),
        ("dns1035LabelPrefix", "DNS1035LabelPrefix", 30, lambda s: name_is_dns1035_label(s, True)),
        ("labelValue", "LabelValue", 40, is_label_value),
        ("uri", "URI", 1000, _uri),
        ("uuid", "uuid", 78, _openapi("uuid", "does not match the UUID format")),
        ("byte", "byte", 84, _openapi("byte", "invalid base64")),
        ("date", "date", 93, _openapi("date", "invalid date")),
        ("datetime", "datetime", 93, _openapi("datetime", "invalid datetime")),
    )
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(True, found)


def _validate(named: NamedFormat, text: str) -> Optional:
    errors = named.check(text)
    return Optional(True, errors) if errors else NONE


def _constant(value: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: value


REGEX_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "find",
        (
            Overload(
                "string_find_string",
                "string.(string) -> string",
                lambda text, p: _regexp(p).find_string(text),
            ),
        ),
    ),
    Function(
        "findAll",
        (
            Overload(
                "string_find_all_string",
                "string.(string) -> list(string)",
                lambda text, p: _regexp(p).find_all_string(text),
            ),
            Overload(
                "string_find_all_string_int",
                "string.(string, int) -> list(string)",
                lambda text, p, limit: _regexp(p).find_all_string(text, limit),
            ),
        ),
    ),
)
URL_FUNCTIONS: tuple[Function, ...] = (
    Function("url", (Overload("string_to_url", "(string) -> kubernetes.URL", Url),)),
    Function("isURL", (Overload("is_url_string", "(string) -> bool", _is_url),)),
    Function(
        "getScheme",
        (Overload("url_get_scheme", "kubernetes.URL.() -> string", lambda u: u.parts.scheme),),
    ),
    Function(
        "getHost",
        (Overload("url_get_host", "kubernetes.URL.() -> string", lambda u: u.parts.host),),
    ),
    Function(
        "getHostname", (Overload("url_get_hostname", "kubernetes.URL.() -> string", Url.hostname),)
    ),
    Function("getPort", (Overload("url_get_port", "kubernetes.URL.() -> string", Url.port),)),
    Function(
        "getEscapedPath",
        (Overload("url_get_escaped_path", "kubernetes.URL.() -> string", Url.path),),
    ),
    Function(
        "getQuery",
        (Overload("url_get_query", "kubernetes.URL.() -> map(string, list(string))", _query),),
    ),
)
FORMAT_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "format.named",
        (Overload("format-named", "(string) -> optional(kubernetes.NamedFormat)", _named),),
    ),
    Function(
        "validate",
        (
            Overload(
                "format-validate",
                "kubernetes.NamedFormat.(string) -> optional(list(string))",
                _validate,
            ),
        ),
    ),
    *(
        Function(
            f"format.{name}",
            (Overload(f"format.{name}", "() -> kubernetes.NamedFormat", _constant(value)),),
        )
        for name, value in FORMATS.items()
    ),
)
JSON_PATCH_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "jsonpatch.escapeKey",
        (
            Overload(
                "string_jsonpatch_escapeKey_string",
                "(string) -> string",
                lambda key: key.replace("~", "~0").replace("/", "~1"),
            ),
        ),
    ),
)
