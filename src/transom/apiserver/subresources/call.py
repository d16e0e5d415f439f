"""What a sub-resource handler is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from transom.apiserver.context import Context
from transom.apiserver.negotiate import Form
from transom.apiserver.requestinfo import RequestInfo
from transom.apiserver.resources import Resource
from transom.http.messages import Answer, Request

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer


class Call(NamedTuple):
    server: ApiServer
    ctx: Context
    res: Resource
    info: RequestInfo
    request: Request
    form: Form


Handler = Callable[[Call], Awaitable[Answer] | Answer]
