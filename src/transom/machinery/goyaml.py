"""YAML as Kubernetes reads and writes it: YAML 1.1 in the reading of go-yaml v2, turned into JSON values.

`y`, `on` and `no` are booleans, a leading zero is octal, keys become strings, only the first document counts. libyaml
does the scanning (go-yaml is a port of it, so layout and error texts agree); what a scalar means is decided here.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from typing import Any

import yaml

from transom.machinery import gojson
from transom.machinery.field import go_quote

_STR = "tag:yaml.org,2002:str"
_PREFIX = "tag:yaml.org,2002:"
_MERGE = "tag:yaml.org,2002:merge"
_BINARY = "tag:yaml.org,2002:binary"
_WORDS: dict[str, tuple[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), ("bool", True)),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), ("bool", False)),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), ("null", None)),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), ("float", math.nan)),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), ("float", math.inf)),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), ("float", -math.inf)),
    "<<": ("merge", "<<"),
}
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII).fullmatch
_DOT_FLOAT = re.compile(r"\.[0-9]+(?:[eE][-+]?[0-9]+)?", re.ASCII).fullmatch
_INT = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)", re.ASCII
).fullmatch
_SIGNED_BINARY = re.compile(r"-?0b([-+]?[01]+)", re.ASCII).fullmatch
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
    r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?)?", re.ASCII
).fullmatch
_BASE60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII).fullmatch
_FIRST = frozenset("+-0123456789yYnNtTfFoO~.")

# How much of the work may come from aliases before it looks like an attack: all but nothing in small documents.
_FREE_STEPS = 100
_SMALL, _LARGE = 400_000, 4_000_000


class YamlError(ValueError):
    """The text is no YAML, or none that JSON can hold; `str()` is go-yaml's message."""


class _Composer(yaml.cyaml.CParser,  # type: ignore[name-defined,misc]
                yaml.constructor.BaseConstructor, yaml.resolver.BaseResolver):
    def __init__(self, text: bytes | str) -> None:
        yaml.cyaml.CParser.__init__(self, text)  # type: ignore[attr-defined]
        yaml.constructor.BaseConstructor.__init__(self)
        yaml.resolver.BaseResolver.__init__(self)

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        """Leave plain scalars unresolved: their meaning is go-yaml's, not PyYAML's."""
        if kind is yaml.ScalarNode:
            return "" if implicit[0] else _STR
        return ""


def load(data: bytes) -> Any:
    """The JSON value of the first document. Raises YamlError."""
    return _Reader().document(data)


def duplicate_keys(data: bytes) -> list[str]:
    """go-yaml's complaints about keys that stand twice in a map: `line 3: key "x" already set in map`."""
    reader = _Reader()
    reader.document(data)
    return reader.duplicates


def to_json(data: bytes) -> bytes:
    """The document as the bytes of the JSON that Kubernetes goes on with."""
    return gojson.marshal(load(data))


def resolve(text: str, tag: str = "") -> tuple[str, Any]:
    """What a plain scalar means: its short tag (`str`, `bool`, `int`, ...) and its value."""
    if tag == "str" or (text and text[0] not in _FIRST and text not in _WORDS):
        return "str", text
    word = _WORDS.get(text)
    if word is not None:
        return word
    first = text[0]
    if first == ".":
        return ("float", float(text)) if _DOT_FLOAT(text) else ("str", text)
    if first in "+-0123456789":
        if tag in ("", "timestamp") and _TIMESTAMP(text):
            return "timestamp", text
        number = _number(text.replace("_", ""))
        if number is not None:
            return ("int" if isinstance(number, int) else "float"), number
    return "str", text


def _number(plain: str) -> int | float | None:
    if _INT(plain):
        digits = plain.lstrip("+-")
        base = {"0x": 16, "0X": 16, "0o": 8, "0O": 8, "0b": 2, "0B": 2}.get(digits[:2])
        value = int(digits[2:], base) if base else int(digits, 8 if digits[0] == "0" else 10)
        if plain[0] == "-":
            value = -value
        if -(1 << 63) <= value < (1 << 63) or (value < (1 << 64) and plain[0] not in "+-"):
            return value
    if _FLOAT(plain):
        value_float = float(plain)
        return value_float if math.isfinite(value_float) else None
    match = _SIGNED_BINARY(plain)
    return int(match[1], 2) * (-1 if plain[0] == "-" else 1) if match else None


class _Reader:
    def __init__(self) -> None:
        self.duplicates: list[str] = []
        self._open: set[int] = set()
        self._seen: set[int] = set()
        self._steps = 0
        self._alias_steps = 0
        self._data = b""

    def document(self, data: bytes) -> Any:
        self._data = data
        try:
            composer = _Composer(data)
            # The composer's own get_single_node insists on a single document.
            node = composer.get_node() if composer.check_node() else None
        except yaml.YAMLError as e:
            raise YamlError(self._syntax(e)) from None
        except RecursionError:
            raise YamlError("yaml: exceeded max depth of 10000") from None
        return None if node is None else self._value(node, False)

    def _syntax(self, error: yaml.YAMLError) -> str:
        if not isinstance(error, yaml.MarkedYAMLError):
            return f"yaml: {getattr(error, 'reason', error)}"
        problem, mark, context = error.problem or "", error.problem_mark, error.context_mark
        if problem == "found undefined alias" and mark is not None:
            name = self._data.splitlines()[mark.line][mark.column + 1:].split()[0].rstrip(b",]}").decode()
            return f"yaml: unknown anchor {name!r} referenced"
        line = 0
        if mark is not None and mark.line:
            line = mark.line + (1 if isinstance(error, yaml.scanner.ScannerError) else 0)
        elif context is not None and context.line:
            line = context.line
        where = f"line {line}: " if line else ""
        return f"yaml: {where}{problem or 'unknown problem parsing YAML content'}"

    def _value(self, node: yaml.Node, aliased: bool) -> Any:
        identity = id(node)
        if identity in self._open:
            raise YamlError(f"yaml: anchor {self._anchor()!r} value contains itself")
        self._count(aliased or identity in self._seen)
        aliased = aliased or identity in self._seen
        if isinstance(node, yaml.ScalarNode):
            self._seen.add(identity)
            value = _scalar(node)
            return _json_float(value) if isinstance(value, float) else value
        self._open.add(identity)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, aliased)
            return [self._value(item, aliased) for item in node.value]
        except RecursionError:
            raise YamlError("yaml: exceeded max depth of 10000") from None
        finally:
            self._open.discard(identity)
            self._seen.add(identity)

    def _count(self, aliased: bool) -> None:
        self._steps += 1
        self._alias_steps += aliased
        steps = self._steps
        if steps > _FREE_STEPS and self._alias_steps > _FREE_STEPS:
            allowed = 0.99 if steps <= _SMALL else 0.10 if steps >= _LARGE else (
                0.99 - 0.89 * (steps - _SMALL) / (_LARGE - _SMALL)
            )
            if self._alias_steps / steps > allowed:
                raise YamlError("yaml: document contains excessive aliasing")

    def _anchor(self) -> str:
        """The anchor that an alias inside it refers to."""
        open_anchors: list[str | None] = []
        for event in yaml.parse(self._data, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                open_anchors.append(event.anchor)
            elif isinstance(event, yaml.CollectionEndEvent):
                open_anchors.pop()
            elif isinstance(event, yaml.AliasEvent) and event.anchor in open_anchors:
                return str(event.anchor)
        return ""

    def _mapping(self, node: yaml.MappingNode, aliased: bool) -> dict[str, Any]:
        out: dict[str, Any] = {}
        seen: set[str] = set()
        for key_node, value_node in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.value == "<<" and key_node.tag in ("", _MERGE):
                self._merge(value_node, out, aliased)
                continue
            key = _scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else self._value(key_node, aliased)
            if isinstance(key, dict | list):
                raise YamlError(f"yaml: invalid map key: {_go_syntax(key)}")
            value = self._value(value_node, aliased)
            name = _key_text(key, value)
            if name in seen:
                line = value_node.start_mark.line + 1
                self.duplicates.append(f"line {line}: key {_go_syntax(key)} already set in map")
            seen.add(name)
            out[name] = value
        return out

    def _merge(self, node: yaml.Node, out: dict[str, Any], aliased: bool) -> None:
        if isinstance(node, yaml.MappingNode):
            out.update(self._value(node, aliased))
            return
        if not isinstance(node, yaml.SequenceNode):
            raise YamlError("yaml: map merge requires map or sequence of maps as the value")
        for item in reversed(node.value):  # earlier maps win
            if not isinstance(item, yaml.MappingNode):
                raise YamlError("yaml: map merge requires map or sequence of maps as the value")
            out.update(self._value(item, aliased))


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    tag: str = node.tag
    short = tag.removeprefix(_PREFIX)
    if tag == _BINARY:
        return _binary(text)
    if tag and short not in ("str", "bool", "int", "float", "null", "timestamp"):
        return text
    found, value = resolve(text, short)
    if short == "float" and found == "int":
        found, value = "float", float(value)
    if short not in ("", "str", found):
        raise YamlError(f"yaml: cannot decode !!{found} `{text}` as a !!{short}")
    return value


def _binary(text: str) -> str:
    from binascii import Error, a2b_base64

    try:
        return gojson.text_of(a2b_base64(text.replace("\n", "").replace("\r", ""), strict_mode=True))
    except Error:
        raise YamlError("yaml: !!binary value contains invalid base64 data") from None


def _json_float(value: float) -> int | float:
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise YamlError(f"json: unsupported value: {name}")
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def _key_text(key: Any, value: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key)
    if isinstance(key, float):
        return _short_float(key)
    raise YamlError(f"Unsupported map key of type: %!s(<nil>), key: <nil>, value: {_go_syntax(value)}")


def _short_float(value: float) -> str:
    """strconv.FormatFloat(value, 'g', -1, 32), with YAML's names for what is no number."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    single = _as_single(value)
    text = next(t for digits in range(17) if _as_single(float(t := f"{single:.{digits}e}")) == single)
    return _general(text)


def _as_single(value: float) -> float:
    single: float = struct.unpack("f", struct.pack("f", value))[0]
    return single


def _general(scientific: str) -> str:
    """The shortest digits, given as `1.5e+03`, in the form Go's 'g' chooses for them."""
    mantissa, _, exponent = scientific.partition("e")
    power = int(exponent)
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    if -4 <= power < 6:
        decimals = len(mantissa.replace("-", "").replace(".", "")) - 1 - power
        return f"{float(scientific):.{max(0, decimals)}f}"
    return f"{mantissa}e{power:+03d}"


def _go_syntax(value: Any) -> str:
    """Go's %#v of a decoded value, as far as error texts need it."""
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, dict):
        inner = ", ".join(f"{_go_syntax(k)}:{_go_syntax(v)}" for k, v in value.items())
        return f"map[interface {{}}]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(_go_syntax(v) for v in value)}}}"
    return str(value)


# --- writing ----------


def dump(value: Any) -> str:
    """Block style, keys in go-yaml's order, strings quoted where they would read as something else."""
    events = [yaml.StreamStartEvent(), yaml.DocumentStartEvent(explicit=False), *_events(value),
              yaml.DocumentEndEvent(explicit=False), yaml.StreamEndEvent()]
    text: str = yaml.emit(events, Dumper=yaml.CSafeDumper, allow_unicode=True)
    # libyaml closes a document that is a bare scalar with `...`, go-yaml does not.
    return text.removesuffix("...\n")


def _events(value: Any) -> Iterator[yaml.Event]:
    if isinstance(value, dict):
        yield yaml.MappingStartEvent(None, None, True, flow_style=False)
        for key in sorted(value, key=_Order):
            yield _string_event(key)
            yield from _events(value[key])
        yield yaml.MappingEndEvent()
    elif isinstance(value, list):
        yield yaml.SequenceStartEvent(None, None, True, flow_style=False)
        for item in value:
            yield from _events(item)
        yield yaml.SequenceEndEvent()
    elif isinstance(value, str):
        yield _string_event(value)
    else:
        yield yaml.ScalarEvent(None, None, (True, True), _plain(value), style="")


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _go_float(value)
    return str(value)


def _go_float(value: float) -> str:
    """strconv.FormatFloat(value, 'g', -1, 64)."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return _general(next(t for digits in range(17) if float(t := f"{value:.{digits}e}") == value))


def _string_event(text: str) -> yaml.ScalarEvent:
    if "\n" in text:
        style = "|"
    elif resolve(text)[0] == "str" and not _BASE60(text):
        style = ""
    else:
        style = '"'
    return yaml.ScalarEvent(None, None, (True, True), text, style=style)


class _Order:
    """go-yaml's order of keys: letters after everything else, runs of digits by their number."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: _Order) -> bool:
        a, b = self.text, other.text
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            if x == y:
                continue
            if x.isalpha() and y.isalpha():
                return x < y
            if x.isalpha() or y.isalpha():
                return y.isalpha()
            return _digits_less(a, b, i)
        return len(a) < len(b)


def _digits_less(a: str, b: str, i: int) -> bool:
    lead = ""
    if a[i] == "0" or b[i] == "0":
        j = i - 1
        while j >= 0 and a[j].isdecimal():
            if a[j] != "0":
                lead = "1"
                break
            j -= 1
    run_a, run_b = _digit_run(a, i), _digit_run(b, i)
    number_a, number_b = int(lead + run_a or "0"), int(lead + run_b or "0")
    if number_a != number_b:
        return number_a < number_b
    if len(run_a) != len(run_b):
        return len(run_a) < len(run_b)
    return a[i] < b[i]


def _digit_run(text: str, start: int) -> str:
    end = start
    while end < len(text) and text[end].isdecimal():
        end += 1
    return text[start:end]
