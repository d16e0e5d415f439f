"""How .NET formats numbers: the standard formats (`N2`, `X4`) and custom ones (`#,##0.00`)."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from transom.userland.limits import check_size

_STANDARD: Final = re.compile(r"([cdefgnprx])(\d*)", re.IGNORECASE)
_PIECES: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\\.|[eE][+-]?0+|.", re.DOTALL)
_PLACES: Final = {"c": 2, "e": 6, "f": 2, "n": 2, "p": 2}


def format_dotnet_number(value: float, shape: str) -> str | None:
    """None for the general format."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    standard = _STANDARD.fullmatch(shape)
    if standard is not None:
        return _standard(value, standard[1], standard[2])
    return _custom(value, shape)


def _fixed(value: float, places: int, comma: str = ",") -> str:
    """Rounds half away from zero, with the digits that .NET Framework considers."""
    exact = Decimal(value) if isinstance(value, int) else Decimal(f"{value:.15g}")
    return f"{exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):{comma}f}"


def _standard(value: float, kind: str, digits: str) -> str | None:
    check_size(float(digits or 0), 10_000)
    lower = kind.lower()
    places = int(digits) if digits else _PLACES.get(lower, 0)
    if lower == "c":
        shown = f"${_fixed(abs(value), places)}"
        return f"({shown})" if value < 0 else shown
    if lower == "e":
        mantissa, _, exponent = f"{value:.{places}E}".partition("E")
        return f"{mantissa}{kind}{int(exponent):+04d}"
    if lower in "gr":
        return f"{value:.{places}G}" if places else None
    if lower == "p":
        return f"{_fixed(value * 100, places)} %"
    if lower == "d":
        return f"{'-' if value < 0 else ''}{abs(int(value)):0{places}d}"
    if lower == "x":
        whole = int(value)
        if whole < 0:  # two's complement
            whole += 1 << (32 if whole >= -(1 << 31) else 64)
        return f"{whole:0{places}{kind}}"
    return _fixed(value, places, "," if lower == "n" else "")


def _custom(value: float, shape: str) -> str:
    sections = _sections(shape)
    if value < 0 and len(sections) > 1:
        return _section(-value, sections[1])
    if value == 0 and len(sections) > 2:
        return _section(value, sections[2])
    shown = _section(abs(value), sections[0])
    return f"-{shown}" if value < 0 and any(c in "123456789" for c in shown) else shown


def _sections(shape: str) -> list[list[str]]:
    """For positive numbers, negative ones and zero, separated by semicolons."""
    out: list[list[str]] = [[]]
    for piece in _PIECES.findall(shape):
        if piece == ";":
            out.append([])
        else:
            out[-1].append(piece)
    return out


def _distributed(digits: str, count: int, grouped: bool) -> list[str]:
    """The digits of each of the `count` places before the point: one, the first has the rest."""
    shown = [
        ("," if grouped and n and (len(digits) - n) % 3 == 0 else "") + digit
        for n, digit in enumerate(digits)
    ]
    shown = [""] * (count - len(shown)) + shown
    first = len(shown) - count + 1
    return ["".join(shown[:first]), *shown[first:]] if count else []


def _section(value: float, pieces: list[str]) -> str:
    exponent = next((one for one in pieces if len(one) > 1 and one[0] in "eE"), "")
    point = pieces.index(".") if "." in pieces else len(pieces)
    digits = [place for place, one in enumerate(pieces) if one in ("0", "#")]
    whole = [place for place in digits if place < point]
    decimals = [place for place in digits if place > point]
    power = 0
    if exponent and value:
        power = math.floor(math.log10(value)) - max(0, len(whole) - 1)
        value = value / 10**power
    if "%" in pieces:
        value *= 100
    before_point = [place for place, one in enumerate(pieces) if one == "," and place < point]
    grouped = any(whole and whole[0] < place < whole[-1] for place in before_point)
    scaled = [place for place in before_point if whole and place > whole[-1]]
    value = value / 1000 ** len(scaled) if scaled else value
    left, _, right = _fixed(value, len(decimals), "").partition(".")
    zeros = [place for place in whole if pieces[place] == "0"]
    least = len(whole) - whole.index(zeros[0]) if zeros else 0
    left = left.lstrip("0").rjust(least, "0")
    own = _distributed(left, len(whole), grouped)
    kept = max((n + 1 for n, place in enumerate(decimals) if pieces[place] == "0"), default=0)
    right = right[:kept] + right[kept:].rstrip("0")
    out: list[str] = []
    for place, one in enumerate(pieces):
        if one in ("0", "#"):
            if place < point:
                out.append(own[whole.index(place)])
        elif place == point:
            out.append((left if not whole else "") + (f".{right}" if right else ""))
        elif one == ",":
            continue
        elif one == exponent:
            sign = "-" if power < 0 else "+" if "+" in one else ""
            out.append(f"{one[0]}{sign}{abs(power):0{one.count('0')}d}")
        elif len(one) > 1:
            out.append(one[1:-1] if one[0] in "'\"" else one[1:])
        else:
            out.append(one)
    return "".join(out)
