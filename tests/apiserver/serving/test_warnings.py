"""How warnings go out: quoted, and bounded as Kubernetes bounds them."""

from __future__ import annotations

from transom.apiserver.serving.responses import warning_headers


def values(*texts: str) -> list[str]:
    return [value.decode() for _, value in warning_headers(texts)]


def test_quotes_and_backslashes_are_escaped() -> None:
    assert values('mount \\\\.\\pipe\\x as "x"') == [
        '299 - "mount \\\\\\\\.\\\\pipe\\\\x as \\"x\\""'
    ]


def test_what_could_break_a_header_is_left_out() -> None:
    assert values("a\r\nX-Evil: 1", "tab\there", "", "ä") == ['299 - "ä"']


def test_as_long_as_all_fit_none_is_cut() -> None:
    assert [len(value) for value in values("a" * 4000, "b" * 96)] == [4000 + 8, 96 + 8]


def test_too_much_is_cut_and_then_ends() -> None:
    lengths = [len(value) - 8 for value in values(*(f"{i:03}" + "x" * 497 for i in range(30)))]
    assert lengths == [256] * 16  # 16 * 256 reach the bound
    assert len(values(*(f"{i:03}" + "x" * 97 for i in range(60)))) == 41
