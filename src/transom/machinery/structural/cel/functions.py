"""What Kubernetes adds to CEL: lists, regular expressions, quantities, URLs, addresses.

The library has no values of our own making, so a quantity or URL is a map with one field that no schema could name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from transom.machinery.quantity import Quantity, QuantityError, parse
from transom.machinery.validation.goregex import compile_pattern
from transom.machinery.validation.names import parse_cidr, parse_ip
from transom.machinery.validation.urls import URLError, parse_url

_QUANTITY, _URL = "!quantity", "!url"


class Function(NamedTuple):
    name: str
    method: bool  # called on its first argument
    parameters: Sequence[str]
    result: str
    run: Callable[..., Any]


def _quantity(value: Any) -> Quantity:
    return parse(value[_QUANTITY])


def _as_quantity(amount: Quantity) -> dict[str, str]:
    return {_QUANTITY: str(amount)}


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def _number(value: Any) -> Quantity:
    return parse(value) if isinstance(value, int) else _quantity(value)


def _url(text: str) -> Any:
    url = parse_url(text)
    if not (url.scheme or text.startswith("/")):
        raise ValueError(f"URL parse error during conversion from string: parse {text!r}: invalid URI for request")
    return {_URL: text}


def _is_url(text: str) -> bool:
    try:
        return bool(_url(text))
    except (URLError, ValueError):
        return False


def _hostname(url: Any) -> str:
    host = parse_url(url[_URL]).host
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _port(url: Any) -> str:
    return parse_url(url[_URL]).host.rpartition("]")[2].partition(":")[2]


def _path(url: Any) -> str:
    rest = url[_URL].partition("?")[0]
    after = rest.partition("://")[2] if "://" in rest else rest
    slash = after.find("/")
    return after[slash:] if slash >= 0 else ""


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in itertools.pairwise(items))


def _index(items: list[Any], wanted: Any) -> int:
    return items.index(wanted) if wanted in items else -1


def _last_index(items: list[Any], wanted: Any) -> int:
    return len(items) - 1 - items[::-1].index(wanted) if wanted in items else -1


def _extreme(choose: Callable[[list[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    def run(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return choose(items)

    return run


def _find(text: str, pattern: str) -> str:
    found = compile_pattern(pattern).search(text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match[0] for match in compile_pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _compare(a: Any, b: Any) -> int:
    return _quantity(a).compare(_quantity(b))


FUNCTIONS: tuple[Function, ...] = (
    Function("isSorted", True, ("LIST",), "BOOL", _is_sorted),
    Function("sum", True, ("LIST",), "DYN", sum),
    Function("min", True, ("LIST",), "DYN", _extreme(min, "min")),
    Function("max", True, ("LIST",), "DYN", _extreme(max, "max")),
    Function("indexOf", True, ("LIST", "DYN"), "INT", _index),
    Function("lastIndexOf", True, ("LIST", "DYN"), "INT", _last_index),
    Function("find", True, ("STRING", "STRING"), "STRING", _find),
    Function("findAll", True, ("STRING", "STRING"), "LIST", _find_all),
    Function("findAll", True, ("STRING", "STRING", "INT"), "LIST", _find_all),
    Function("isQuantity", False, ("STRING",), "BOOL", _is_quantity),
    Function("quantity", False, ("STRING",), "MAP", lambda text: _as_quantity(parse(text))),
    Function("isGreaterThan", True, ("MAP", "MAP"), "BOOL", lambda a, b: _compare(a, b) > 0),
    Function("isLessThan", True, ("MAP", "MAP"), "BOOL", lambda a, b: _compare(a, b) < 0),
    Function("compareTo", True, ("MAP", "MAP"), "INT", _compare),
    Function("sign", True, ("MAP",), "INT", lambda a: _quantity(a).sign),
    Function("add", True, ("MAP", "DYN"), "MAP", lambda a, b: _as_quantity(_quantity(a) + _number(b))),
    Function("sub", True, ("MAP", "DYN"), "MAP", lambda a, b: _as_quantity(_quantity(a) - _number(b))),
    Function("isInteger", True, ("MAP",), "BOOL", lambda a: _quantity(a).as_int64() is not None),
    Function("asInteger", True, ("MAP",), "INT", lambda a: _quantity(a).value()),
    Function("asApproximateFloat", True, ("MAP",), "DOUBLE", lambda a: _quantity(a).to_float()),
    Function("isURL", False, ("STRING",), "BOOL", _is_url),
    Function("url", False, ("STRING",), "MAP", _url),
    Function("getScheme", True, ("MAP",), "STRING", lambda url: parse_url(url[_URL]).scheme),
    Function("getHost", True, ("MAP",), "STRING", lambda url: parse_url(url[_URL]).host),
    Function("getHostname", True, ("MAP",), "STRING", _hostname),
    Function("getPort", True, ("MAP",), "STRING", _port),
    Function("getEscapedPath", True, ("MAP",), "STRING", _path),
    Function("getQuery", True, ("MAP",), "MAP",
             lambda url: parse_qs(url[_URL].partition("?")[2], keep_blank_values=True)),
    Function("isIP", False, ("STRING",), "BOOL", lambda text: parse_ip(text) is not None),
    Function("isCIDR", False, ("STRING",), "BOOL", lambda text: parse_cidr(text) is not None),
)
