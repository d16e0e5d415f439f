"""Go's command line: `--name=value`, `-name value`, `--name`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def parse(argv: Sequence[str]) -> Mapping[str, str]:
    """Flags by name. One without a value is "true"; a word behind one is its value."""
    out: dict[str, str] = {}
    last = ""
    for word in argv[1:]:
        if word.startswith("-"):
            last, _, value = word.lstrip("-").partition("=")
            out[last] = value if "=" in word else "true"
        elif last and out[last] == "true":
            out[last] = word
    return out


def socket_path(text: str, windows: bool) -> str:
    """`unix:///csi/csi.sock`, `unix://C:\\csi\\csi.sock` and the path alone."""
    path = text.removeprefix("unix:")
    if windows:
        path = path.lstrip("/\\") if text.startswith("unix:") else path
        return path.replace("/", "\\")
    return "/" + path.lstrip("/") if text.startswith("unix:") else path
