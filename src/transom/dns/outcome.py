"""What goes along the chain of a DNS server: a request one way, its outcome the other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from transom.kit import dnswire as wire
from transom.kit.dnswire import Record


class Request(NamedTuple):
    asked: bytes  # the name as the client spells it
    labels: Sequence[bytes]  # of the name in small letters
    type: int
    do: bool = False  # the client wants signatures
    depth: int = 0  # how many other names have led here

    @property
    def key(self) -> tuple[bytes, int, bool]:
        return self.asked.lower(), self.type, self.do


class Outcome(NamedTuple):
    rcode: int
    answers: Sequence[Record] = ()
    authority: Sequence[Record] = ()
    additional: Sequence[Record] = ()
    flags: int = wire.AA  # beside those of every answer
    depends: Sequence[str] | None = None  # it is good until one of these changes; None: it is not to be kept


Link = Callable[[Request], "Outcome | Coroutine[Any, Any, Outcome] | None"]
"""A link of the chain. None: the next one may know. Only who has to wait gives a coroutine."""


def request(asked: bytes, type: int, do: bool = False, depth: int = 0) -> Request:
    return Request(asked, wire.labels(asked.lower()), type, do, depth)
