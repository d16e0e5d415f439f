"""The error messages of Kubernetes' JSON decoder: which bytes did not fit, and into which field.

Clients print these messages. The decoder (json-iterator) does not stop at the first error: it
continues and prefixes the error with every field it passes, so the message can only be found by
walking the bytes in the same way. This is the slow path, used when the fast one (`normalise`) has
rejected a value; the bytes are valid JSON by then.
"""

from __future__ import annotations

from collections.abc import Callable

from transom.machinery import gojson
from transom.machinery.normalise import next_digit
from transom.machinery.ownforms import OWN_FORMS, bad_base64, unescaped
from transom.machinery.schema import SchemaType, SchemaValue

_SPACE = b" \t\r\n"
_HASHED_FIELDS = 10  # structs with up to this many fields have a specialized decoder
_QUOTE, _COMMA, _COLON, _CLOSE_BRACE, _CLOSE_BRACKET = b'",:}]'


def jsoniter_error(of: SchemaType | SchemaValue, data: bytes) -> str:
    """json-iterator's message about decoding `data` into the type; "" if it finds no error."""
    walker = _Walker(data)
    if isinstance(of, SchemaType):
        walker.struct(of)
    else:
        walker.value(of)
    return gojson.go_json_text(walker.error)


def unmarshaler_error(data: bytes, message: str) -> str:
    """The message if a type's own decoder rejects the whole value, which is all of `data`."""
    walker = _Walker(data)
    walker.next_token()
    walker.head -= 1
    walker.skip()
    walker.report("unmarshalerDecoder", message.encode())
    return gojson.go_json_text(walker.error)


class _Walker:
    """A position in the bytes and the error so far; `ended` is the decoder's io.EOF."""

    __slots__ = ("data", "ended", "error", "head")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.head = 0
        self.error = b""
        self.ended = False

    # --- bytes ----------

    def next_token(self) -> int:
        data, head = self.data, self.head
        while head < len(data):
            c = data[head]
            head += 1
            if c not in _SPACE:
                self.head = head
                return c
        return self._end()

    def read_byte(self) -> int:
        if self.head >= len(self.data):
            return self._end()
        self.head += 1
        return self.data[self.head - 1]

    def _end(self) -> int:
        if not self.error and not self.ended:
            self.head = len(self.data)
            self.ended = True
        return 0

    def unread(self) -> None:
        """Once there is an error the decoder no longer goes back."""
        if not self.error and not self.ended:
            self.head -= 1

    def report(self, operation: str, message: bytes) -> None:
        if self.error:
            return
        head, data = self.head, self.data
        near, wide = max(head - 10, 0), max(head - 50, 0)
        self.error = b"%s: %s, error found in #%d byte of ...|%s|..., bigger context ...|%s|..." % (
            operation.encode(),
            message,
            head - near,
            data[near : head + 10],
            data[wide : head + 50],
        )

    def expected(self, operation: str, what: str, found: int) -> None:
        self.report(operation, b"%s, but found %s" % (what.encode(), bytes([found])))

    # --- scalars ----------

    def nil(self) -> bool:
        if self.next_token() == ord("n"):
            self._literal(b"ull")
            return True
        self.unread()
        return False

    def _literal(self, rest: bytes) -> None:
        for expected in rest:
            if self.read_byte() != expected:
                self.report(
                    "skipFourBytes" if len(rest) == 4 else "skipThreeBytes", b"expect " + rest
                )
                return

    def string(self) -> bytes:
        c = self.next_token()
        if c == _QUOTE:
            return self._rest_of_string()
        if c == ord("n"):
            self._literal(b"ull")
        else:
            self.expected("ReadString", 'expects " or n', c)
        return b""

    def _rest_of_string(self) -> bytes:
        """From after the opening quote to after the closing one; the bytes between, not
        unescaped.
        """
        start, data = self.head, self.data
        at = start
        while at < len(data):
            c = data[at]
            if c == _QUOTE:
                self.head = at + 1
                return data[start:at]
            at += 2 if c == ord("\\") else 1
        self.head = len(data)
        self._end()
        self.report("readStringSlowPath", b"unexpected end of input")
        return b""

    def boolean(self) -> None:
        if self.nil():
            return
        c = self.next_token()
        if c == ord("t"):
            self._literal(b"rue")
        elif c == ord("f"):
            self._literal(b"alse")
        else:
            self.expected("ReadBool", "expect t or f", c)

    def integer(self, bits: int) -> None:
        if self.nil():
            return
        c = self.next_token()
        negative = c == ord("-")
        number = self._unsigned(self.read_byte() if negative else c, bits)
        if number is not None and number > (1 << (bits - 1)) - (0 if negative else 1):
            self.report(f"ReadInt{bits}", b"overflow: %d" % number)

    def _unsigned(self, c: int, bits: int) -> int | None:
        if not 0x30 <= c <= 0x39:
            # The message contains the byte 255: the decoder prints its own marker instead of the
            # character.
            self.report(f"readUint{bits}", b"unexpected character: \xff")
            return None
        number = c - 0x30
        while number and self.head < len(self.data) and 0x30 <= self.data[self.head] <= 0x39:
            grown = next_digit(number, self.data[self.head] - 0x30, bits)
            if grown is None:
                self.report(f"readUint{bits}", b"overflow")
                return None
            number = grown
            self.head += 1
        if self.head < len(self.data) and self.data[self.head] == ord("."):
            self.report("assertInteger", b"can not decode float as int")
        return number

    def floating(self) -> None:
        if self.nil():
            return
        if self.next_token() != ord("-"):
            self.unread()
        start = self.head
        while self.head < len(self.data) and self.data[self.head] in b"+-.eE0123456789":
            self.head += 1
        if self.head == start:
            self.report("readNumberAsString", b"invalid number")

    def base64(self) -> None:
        if self.nil():
            return
        c = self.next_token()
        self.unread()
        if c == _QUOTE:
            text = self.string()
            where = bad_base64(unescaped(text))
            if where is not None:
                self.report("decode base64", b"illegal base64 data at input byte %d" % where)
        elif c == ord("["):
            self.sequence("[]uint8", self._byte)
        else:
            self.report("base64Codec", b"invalid input")

    def _byte(self) -> None:
        if self.nil():
            return
        number = self._unsigned(self.next_token(), 32)
        if number is not None and number > 255:
            self.report("ReadUint8", b"overflow: %d" % number)

    # --- values of no type ----------

    def skip(self) -> None:
        c = self.next_token()
        if c == _QUOTE:
            self._rest_of_string()
        elif c in b"nt":
            self._literal(b"ull" if c == ord("n") else b"rue")
        elif c == ord("f"):
            self._literal(b"alse")
        elif c in b"-0123456789":
            while self.head < len(self.data) and self.data[self.head] in b"+-.eE0123456789":
                self.head += 1
        elif c in b"[{":
            self._skip_nested()
        else:
            self.report("Skip", b"do not know how to skip: %d" % c)

    def _skip_nested(self) -> None:
        depth = 1
        while depth:
            c = self.next_token()
            if c == _QUOTE:
                self._rest_of_string()
            elif c in b"[{":
                depth += 1
            elif c in b"]}":
                depth -= 1
            elif c == 0 and self.head >= len(self.data):
                return

    # --- values with a type ----------

    def value(self, value: SchemaValue) -> None:
        if value.pointer and self.nil():
            return
        kind = value.kind
        if kind == "struct":
            self.struct(value.type)
        elif kind == "list":
            item = value.item
            assert item is not None
            self.sequence(value.go_name, lambda: self.value(item))
        elif kind == "map":
            assert value.item is not None
            self.mapping(value.item)
        elif kind == "string":
            self.string()
        elif kind == "bool":
            self.boolean()
        elif kind in ("int32", "int64"):
            self.integer(int(kind[3:]))
        elif kind == "float":
            self.floating()
        elif kind == "bytes":
            self.base64()
        elif kind == "any":
            self.skip()
        else:
            self._own_form(OWN_FORMS[kind])

    def _own_form(self, complaint: Callable[[bytes], str | None]) -> None:
        """A type with its own JSON decoder: it gets the bytes of one value."""
        self.next_token()
        self.unread()
        start = self.head
        self.skip()
        text = complaint(self.data[start : self.head])
        if text is not None:
            self.report("unmarshalerDecoder", text.encode())

    def sequence(self, go_name: str, item: Callable[[], None]) -> None:
        self._items(item)
        if self.error:
            self.error = go_name.encode() + b": " + self.error

    def _items(self, item: Callable[[], None]) -> None:
        c = self.next_token()
        if c == ord("n"):
            self._literal(b"ull")
            return
        if c != ord("["):
            self.expected("decode slice", "expect [ or n", c)
            return
        if self.next_token() == _CLOSE_BRACKET:
            return
        self.unread()
        item()
        while (c := self.next_token()) == _COMMA:
            item()
        if c != _CLOSE_BRACKET:
            self.expected("decode slice", "expect ]", c)

    def mapping(self, item: SchemaValue) -> None:
        c = self.next_token()
        if c == ord("n"):
            self._literal(b"ull")
            return
        if c != ord("{"):
            self.expected("ReadMapCB", "expect { or n", c)
            return
        if self.next_token() == _CLOSE_BRACE:
            return
        self.unread()
        while True:
            self.string()
            if (c := self.next_token()) != _COLON:
                self.expected("ReadMapCB", "expect : after object field", c)
                return
            self.value(item)
            if (c := self.next_token()) != _COMMA:
                break
        if c != _CLOSE_BRACE:
            self.expected("ReadMapCB", "expect }", c)

    def struct(self, of: SchemaType) -> None:
        if not of.properties:
            c = self.next_token()
            self.unread()
            if c in b"{n":
                self.skip()
            else:
                self.report("skipObjectDecoder", b"expect object or null")
            return
        c = self.next_token()
        if c == ord("n"):
            self._literal(b"ull")
            return
        if c != ord("{"):
            self.expected("readObjectStart", "expect { or n", c)
            return
        if self.next_token() == _CLOSE_BRACE:
            return
        self.unread()
        if len(of.properties) <= _HASHED_FIELDS:
            self._few_fields(of)
        else:
            self._many_fields(of)

    def _few_fields(self, of: SchemaType) -> None:
        while True:
            self._field(of, self._hashed_key())
            c = self.next_token()
            if c == _COMMA:
                continue
            if c != _CLOSE_BRACE:
                self.report(
                    "isObjectEnd", b"object ended prematurely, unexpected char " + bytes([c])
                )
            break
        self._in_struct(of)

    def _hashed_key(self) -> bytes | None:
        c = self.next_token()
        if c != _QUOTE:
            self.expected("readFieldHash", 'expect "', c)
            return None
        key = self._rest_of_string()
        c = self.next_token()
        if c != _COLON:
            self.expected("readFieldHash", "expect :", c)
            return None
        return key

    def _many_fields(self, of: SchemaType) -> None:
        c = _COMMA
        while c == _COMMA:
            key = self.string()
            if (c := self.next_token()) != _COLON:
                self.expected("ReadObject", "expect : after object field", c)
            self._field(of, key)
            c = self.next_token()
        self._in_struct(of)
        if c != _CLOSE_BRACE:
            self.expected("struct Decode", "expect }", c)

    def _field(self, of: SchemaType, key: bytes | None) -> None:
        known = of.properties.get(unescaped(key)) if key is not None else None
        if known is None:
            self.skip()
            return
        self.value(known.value)
        if self.error:
            for name in reversed(known.go_path):
                self.error = name.encode() + b": " + self.error

    def _in_struct(self, of: SchemaType) -> None:
        if self.error:
            self.error = of.name.encode() + b"." + self.error
