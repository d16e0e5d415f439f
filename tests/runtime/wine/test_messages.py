"""Message tables, and a library with a replaced table."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.runtime.wine import installation, messages


@given(
    st.dictionaries(
        st.integers(0, 1 << 31),
        st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))),
    )
)
def test_what_is_written_is_read(table: dict[int, str]) -> None:
    assert dict(messages.read_messages(messages.write_messages(table))) == table


def library(languages: dict[int, dict[int, str]], room: int = 0) -> bytes:
    """The least of a PE file: one section, with nothing but tables of messages."""

    def folder(entries: list[tuple[int, int]]) -> bytes:
        return struct.pack("<IIHHHH", 0, 0, 0, 0, 0, len(entries)) + b"".join(
            struct.pack("<II", *each) for each in entries
        )

    leaves = 24 + 24 + 16 + 8 * len(languages)
    at = leaves + 16 * len(languages)
    entries, data = b"", b""
    for table in languages.values():
        raw = messages.write_messages(table) + bytes(room)
        entries += struct.pack("<IIII", 0x1000 + at + len(data), len(raw), 0, 0)
        data += raw
    resources = folder([(11, 24 | 1 << 31)]) + folder([(1, 48 | 1 << 31)])
    resources += (
        folder([(language, leaves + 16 * i) for i, language in enumerate(languages)])
        + entries
        + data
    )
    head = bytearray(0x200)
    struct.pack_into("<I", head, 0x3C, 0x40)
    struct.pack_into("<4sHH12xH", head, 0x40, b"PE\0\0", 0x8664, 1, 0xF0)
    struct.pack_into("<II", head, 0x40 + 24 + 112 + 16, 0x1000, len(resources))
    struct.pack_into(
        "<8sIIII", head, 0x40 + 24 + 0xF0, b".rsrc", len(resources), 0x1000, len(resources), 0x200
    )
    return bytes(head) + resources


def tables(made: bytes) -> dict[int, dict[int, str]]:
    return {
        table.language: dict(messages.read_messages(made[table.at : table.at + table.size]))
        for table in messages.message_resources(made)
    }


def test_english_gets_the_longest_place() -> None:
    wine = {
        0x407: {5: "Zugriff verweigert. " * 20},
        0x409: {5: "Access denied.\r\n", 7: "Seven.\r\n"},
        0x40C: {5: "Non."},
    }
    made = messages.translate_messages(
        library(wine), {5: "Access is denied.", 6: "The handle is invalid."}
    )
    assert made is not None
    english = {5: "Access is denied.\r\n", 6: "The handle is invalid.\r\n", 7: "Seven.\r\n"}
    assert tables(made) == {0x407: english, 0x409: english, 0x40C: {5: "Non."}}


@pytest.mark.parametrize(
    "file", [b"", b"MZ", library({0x407: {5: "Nein."}}), library({0x409: {5: "No."}})]
)
def test_what_cannot_be_changed(file: bytes) -> None:
    assert messages.translate_messages(file, {5: "Access is denied."}) is None


@given(
    st.dictionaries(
        st.integers(0, 15), st.text(st.characters(exclude_categories=("Cs",)), max_size=50)
    )
)
def test_strings_are_read_as_written(strings: dict[int, str]) -> None:
    assert dict(messages.read_strings(messages.write_strings(strings))) == {
        n: strings.get(n, "") for n in range(16)
    }


def test_of_the_wine_that_is_here() -> None:
    wine = installation.find_wine()
    if wine is None:
        pytest.skip("Wine is not installed")
    made = messages.translate_messages((wine.windows_libraries / "kernelbase.dll").read_bytes())
    assert made is not None
    found = tables(made)[0x409]
    assert {number: found[number] for number in messages.TEXTS} == {
        n: f"{text}\r\n" for n, text in messages.TEXTS.items()
    }
    assert messages.reword_strings((wine.windows_libraries / "cmd.exe").read_bytes()) is not None
