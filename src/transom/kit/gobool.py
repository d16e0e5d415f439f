"""Go's strconv.ParseBool: the texts that flags, annotations, query parameters and options accept
as booleans.
"""

from __future__ import annotations

from typing import Final

from transom.kit.goquote import go_quote

TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def parse_go_bool(text: str) -> bool:
    """Raises ValueError with Go's message."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise ValueError(f"strconv.ParseBool: parsing {go_quote(text)}: invalid syntax")
