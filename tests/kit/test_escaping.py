from __future__ import annotations

import sys
import unicodedata

from transom.kit.escaping import escape_line

# Controls, line and paragraph separators, and lone surrogates.
UNSAFE = ("Cc", "Zl", "Zp", "Cs")
DIRECTION = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"


def test_every_unsafe_character_is_escaped_and_no_other() -> None:
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        unsafe = unicodedata.category(character) in UNSAFE or character in DIRECTION
        is_kept = escape_line(character) == character
        assert is_kept == (not unsafe or character == "\t"), hex(number)


def test_only_the_unsafe_characters_of_a_text_change() -> None:
    assert escape_line("a\u00a0b\tc\nd\x1b[2J") == "a\u00a0b\tc\\nd\\x1b[2J"
