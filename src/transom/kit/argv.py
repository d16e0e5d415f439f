"""How a Windows program cuts the command line it was started with into arguments, as its C start-up code does it."""

from __future__ import annotations


def arguments(text: str, blanks: str = " \t") -> list[str]:
    found: list[str] = []
    current: list[str] | None = None
    quoted = False
    i = 0
    while i < len(text):
        c = text[i]
        if c in blanks and not quoted:
            if current is not None:
                found.append("".join(current))
                current = None
            i += 1
            continue
        current = [] if current is None else current
        if c == "\\":
            end = i
            while end < len(text) and text[end] == "\\":
                end += 1
            count = end - i
            if end < len(text) and text[end] == '"':
                current.append("\\" * (count // 2))
                if count % 2:
                    current.append('"')
                    end += 1
            else:
                current.append("\\" * count)
            i = end
        elif c == '"':
            if quoted and text[i + 1 : i + 2] == '"':  # two of them inside quotes are one
                current.append('"')
                i += 1
            else:
                quoted = not quoted
            i += 1
        else:
            current.append(c)
            i += 1
    if current is not None:
        found.append("".join(current))
    return found
