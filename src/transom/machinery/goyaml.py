"""YAML as Kubernetes reads and writes it: YAML 1.1 as implemented by go-yaml v2, converted to JSON
values.

`y`, `on` and `no` are booleans, a leading zero is octal, keys become strings, only the first
document counts. libyaml does the scanning (go-yaml is a port of it, so layout and error messages
agree); this module resolves scalars.
"""

from __future__ import annotations

import binascii
import math
import re
import struct
from collections.abc import Iterator
from typing import Any

import orjson
import yaml

from transom.kit.goquote import go_quote
from transom.machinery import gojson
from transom.machinery.objects import MAX_DEPTH

_STR = "tag:yaml.org,2002:str"
_PREFIX = "tag:yaml.org,2002:"
_MERGE = "tag:yaml.org,2002:merge"
_BINARY = "tag:yaml.org,2002:binary"
_WORDS: dict[str, tuple[str, Any]] = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), ("bool", True)
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"),
        ("bool", False),
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), ("null", None)),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), ("float", math.nan)),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), ("float", math.inf)),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), ("float", -math.inf)),
    "<<": ("merge", "<<"),
}
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII
).fullmatch
_DOT_FLOAT = re.compile(r"\.[0-9]+(?:[eE][-+]?[0-9]+)?", re.ASCII).fullmatch
_INT = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)", re.ASCII
).fullmatch
_SIGNED_BINARY = re.compile(r"-?0b([-+]?[01]+)", re.ASCII).fullmatch
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
    r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?)?",
    re.ASCII,
).fullmatch
_BASE60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII).fullmatch
_FIRST = frozenset("+-0123456789yYnNtTfFoO~.")

# The share of the work that may come from aliases before it looks like an attack: almost any in
# small documents.
_FREE_STEPS, _FREE_ALIASES = 1000, 100
_SMALL, _LARGE = 400_000, 4_000_000


_TOO_DEEP = (
    f"yaml: exceeded max depth of {MAX_DEPTH}"  # libyaml's time for a token grows with the depth
)
_LONGEST_INTEGER = (
    80  # characters, of 64 binary digits with sign and prefix; longer ones are floats or strings
)
_SIMPLE_KEY = 1000  # libyaml takes a key of up to 1024 characters without a question mark
_CHANGING = (dict, list, float)
_NOT_AS_YAML = re.compile(rb"[\t\x7f]|\\[u/]").search


class YamlError(ValueError):
    """The text is not YAML, or cannot be represented in JSON; `str()` is go-yaml's message."""


def load_yaml(data: bytes) -> Any:
    """The JSON value of the first document. Raises YamlError."""
    return _Reader().document(data)


def load_json(data: bytes) -> Any:
    """The value of a document that is JSON and has the same meaning as YAML; None for any other document.

    Clients send JSON where YAML is expected, and parsing it as JSON is many times faster. The few
    texts that YAML parses differently (tabs, `\\u` and `\\/` escapes, very long keys) are left to
    `load_yaml`.
    """
    if data[:1] != b"{" or not data.isascii() or _NOT_AS_YAML(data):
        return None
    try:
        return _yaml_numbers(orjson.loads(data))
    except (orjson.JSONDecodeError, _DiffersInYaml):
        return None


class _DiffersInYaml(Exception):
    pass


def _yaml_numbers(value: Any) -> Any:
    """Whole floats as integers, the combined result of go-yaml and encoding/json."""
    kind = value.__class__
    if kind is dict:
        for key, item in value.items():
            if len(key) > _SIMPLE_KEY:
                raise _DiffersInYaml
            if item.__class__ in _CHANGING:
                value[key] = _yaml_numbers(item)
    elif kind is list:
        for i, item in enumerate(value):
            if item.__class__ in _CHANGING:
                value[i] = _yaml_numbers(item)
    elif kind is float:
        return _json_float(value)
    return value


def duplicate_keys(data: bytes) -> list[str]:
    """go-yaml's errors about duplicate keys in a map: `line 3: key "x" already set in map`."""
    reader = _Reader()
    reader.document(data)
    return reader.duplicates


def to_json(data: bytes) -> bytes:
    """The document as the JSON that Kubernetes processes further."""
    return gojson.marshal(load_yaml(data))


def resolve_scalar(text: str, tag: str = "") -> tuple[str, Any]:
    """Resolves a plain scalar: its short tag (`str`, `bool`, `int`, ...) and its value."""
    if tag == "str" or (text and text[0] not in _FIRST and text not in _WORDS):
        return "str", text
    word = _WORDS.get(text)
    if word is not None:
        return word
    first = text[0]
    if (
        first != "0"
        and text.isdecimal()
        and text.isascii()
        and len(text) < 19
        and tag in ("", "int")
    ):
        return "int", int(text)
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
    if len(plain) <= _LONGEST_INTEGER and _INT(plain):
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
    match = _SIGNED_BINARY(plain) if len(plain) <= _LONGEST_INTEGER else None
    return int(match[1], 2) * (-1 if plain[0] == "-" else 1) if match else None


class _Open:
    """A list or map whose end has not been read yet."""

    __slots__ = ("anchor", "is_key", "key", "line", "merge", "names", "steps_before", "value")

    def __init__(self, value: Any, anchor: str | None, steps: int) -> None:
        self.value = value  # the list or dict itself
        self.anchor = anchor
        self.steps_before = steps
        self.is_key = value.__class__ is dict  # whether the next node is the key of a map
        self.key: Any = None
        self.merge = False  # the key is `<<`
        self.line = 0  # where the value of the key starts
        self.names: set[str] | None = (
            None  # the keys, once a merge made them differ from those in `value`
        )


class _Anchored:
    """A value with an anchor, and the number of steps to decode it. `steps` is 0 while it is open."""

    __slots__ = ("steps", "value")

    def __init__(self, value: Any = None, steps: int = 0) -> None:
        self.value = value
        self.steps = steps


class _Reader:
    """Builds the value of a document from libyaml's events.

    Uses an explicit stack: a recursive composer overflows the C stack at some 30,000 levels.
    go-yaml reads the whole text before it decodes anything, so decoding errors are raised only at
    the end.
    """

    def __init__(self) -> None:
        self.duplicates: list[str] = []
        self._steps = 0
        self._alias_steps = 0
        self._error = ""  # the first one
        self._anchors: dict[str, _Anchored] = {}
        self._stack: list[_Open] = []
        self._result: Any = None

    def document(self, data: bytes) -> Any:
        try:
            self._read(yaml.cyaml.CParser(data))  # type: ignore[attr-defined]
        except yaml.YAMLError as e:
            raise YamlError(_syntax(e)) from None
        except RecursionError:
            raise YamlError(_TOO_DEEP) from None
        if self._error:
            raise YamlError(self._error)
        return self._result

    def _read(self, parser: Any) -> None:
        stack, next_event = self._stack, parser.get_event
        while True:
            event = next_event()
            kind = event.__class__
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._open(event, {} if kind is yaml.MappingStartEvent else [])
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                closed = stack.pop()
                if closed.anchor is not None:
                    self._anchors[closed.anchor] = _Anchored(
                        closed.value, self._steps - closed.steps_before
                    )
                self._add(closed.value)
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentEndEvent or kind is yaml.StreamEndEvent:
                return

    def _fail(self, text: str) -> None:
        self._error = self._error or text

    def _count(self, steps: int, alias_steps: int) -> None:
        self._steps += steps
        self._alias_steps += alias_steps
        if self._alias_steps > _FREE_ALIASES and self._steps > _FREE_STEPS:
            total = self._steps
            allowed = (
                0.99
                if total <= _SMALL
                else 0.10
                if total >= _LARGE
                else (0.99 - 0.89 * (total - _SMALL) / (_LARGE - _SMALL))
            )
            if self._alias_steps / total > allowed:
                raise YamlError("yaml: document contains excessive aliasing")

    def _open(self, event: Any, value: Any) -> None:
        stack = self._stack
        if len(stack) >= MAX_DEPTH:
            raise YamlError(_TOO_DEEP)
        if stack:
            stack[-1].line = event.start_mark.line
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = _Anchored()
        stack.append(_Open(value, anchor, self._steps))
        self._steps += 1

    def _scalar(self, event: Any) -> None:
        self._steps += 1
        text, tag = event.value, event.tag
        if tag is None or tag == "!":
            tag = "" if event.implicit[0] else _STR
        top = self._stack[-1] if self._stack else None
        is_key = top is not None and top.is_key
        if is_key and text == "<<" and tag in ("", _MERGE):
            assert top is not None
            top.merge, top.is_key = True, False
            return
        try:
            value = text if tag == _STR else _scalar(text, tag)
            if value.__class__ is float and not is_key:
                value = _json_float(value)
        except YamlError as e:
            self._error = self._error or str(e)
            value = None
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, 1)
        if top is not None:
            top.line = event.start_mark.line
        self._add(value)

    def _alias(self, event: Any) -> None:
        name = event.anchor
        known = self._anchors.get(name)
        if known is None:
            raise YamlError(f"yaml: unknown anchor {name!r} referenced")
        self._count(1, 0)
        if not known.steps:
            self._fail(f"yaml: anchor {name!r} value contains itself")
            self._add(None)
            return
        self._count(known.steps, known.steps)
        if self._stack:
            self._stack[-1].line = event.start_mark.line
        self._add(_copy(known.value))

    def _add(self, value: Any) -> None:
        """Adds the value of a complete node to its parent."""
        if not self._stack:
            self._result = value
            return
        top = self._stack[-1]
        if top.value.__class__ is list:
            top.value.append(value)
        elif top.is_key:
            if value.__class__ is dict or value.__class__ is list:
                self._fail(f"yaml: invalid map key: {_go_syntax(value)}")
                value = ""
            top.key, top.is_key = value, False
        elif top.merge:
            top.merge, top.is_key = False, True
            if top.names is None:
                top.names = set(top.value)
            self._merge(value, top.value)
        else:
            top.is_key = True
            self._set(top, value)

    def _set(self, top: _Open, value: Any) -> None:
        key = top.key
        if key.__class__ is str:
            name = key
        else:
            try:
                name = _key_text(key, value)
            except YamlError as e:
                self._error = self._error or str(e)
                return
        if name in (top.value if top.names is None else top.names):
            self.duplicates.append(f"line {top.line + 1}: key {_go_syntax(key)} already set in map")
        if top.names is not None:
            top.names.add(name)
        top.value[name] = value

    def _merge(self, value: Any, out: dict[str, Any]) -> None:
        maps = value[::-1] if isinstance(value, list) else [value]  # earlier maps win
        for item in maps:
            if not isinstance(item, dict):
                self._fail("yaml: map merge requires map or sequence of maps as the value")
                return
            out.update(item)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _syntax(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"yaml: {getattr(error, 'reason', error)}"
    problem, mark, context = error.problem or "", error.problem_mark, error.context_mark
    line = 0
    if mark is not None and mark.line:
        line = mark.line + (1 if isinstance(error, yaml.scanner.ScannerError) else 0)
    elif context is not None and context.line:
        line = context.line
    where = f"line {line}: " if line else ""
    return f"yaml: {where}{problem or 'unknown problem parsing YAML content'}"


def _scalar(text: str, tag: str) -> Any:
    short = tag.removeprefix(_PREFIX)
    if tag == _BINARY:
        return _binary(text)
    if tag and short not in ("str", "bool", "int", "float", "null", "timestamp"):
        return text
    found, value = resolve_scalar(text, short)
    if short == "float" and found == "int":
        found, value = "float", float(value)
    if short not in ("", "str", found):
        raise YamlError(f"yaml: cannot decode !!{found} `{text}` as a !!{short}")
    return value


def _binary(text: str) -> str:
    try:
        return gojson.go_json_text(
            binascii.a2b_base64(text.replace("\n", "").replace("\r", ""), strict_mode=True)
        )
    except binascii.Error:
        raise YamlError("yaml: !!binary value contains invalid base64 data") from None


def _json_float(value: float) -> int | float:
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise YamlError(f"json: unsupported value: {name}")
    return int(value) if value.is_integer() and abs(value) < 1 << 63 else value


def _key_text(key: Any, value: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key)
    if isinstance(key, float):
        return _short_float(key)
    raise YamlError(
        f"Unsupported map key of type: %!s(<nil>), key: <nil>, value: {_go_syntax(value)}"
    )


def _short_float(value: float) -> str:
    """strconv.FormatFloat(value, 'g', -1, 32), with YAML's names for NaN and infinity."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    single = _as_single(value)
    text = next(
        t for digits in range(17) if _as_single(float(t := f"{single:.{digits}e}")) == single
    )
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


def dump_yaml(value: Any) -> str:
    """Block style, keys in go-yaml's order, strings quoted where they would parse as another type."""
    events = [
        yaml.StreamStartEvent(),
        yaml.DocumentStartEvent(explicit=False),
        *_events(value),
        yaml.DocumentEndEvent(explicit=False),
        yaml.StreamEndEvent(),
    ]
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
    elif resolve_scalar(text)[0] == "str" and not _BASE60(text):
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
