"""Answers the questions that expressions of policies and webhooks ask the authorizer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from transom.apiserver.core.answers import AnswerNeeded, retry_with_answers
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.machinery.cel.access import AccessDecision, AccessQuery


class AuthorizerDecision(Protocol):
    @property
    def allowed(self) -> bool | None: ...
    @property
    def reason(self) -> str: ...


Decide = Callable[[UserInfo, RequestInfo], AuthorizerDecision]


class RequestAuthorizer:
    """Answers the authorizer library for the user of a request. Expressions that use it run in a
    worker thread; the authorizers run on the event loop.
    """

    def __init__(self, decide: Decide, user: UserInfo) -> None:
        self._decide, self._user = decide, user
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._known: dict[AccessQuery, AccessDecision] = {}

    def __call__(self, query: AccessQuery) -> AccessDecision:
        known = self._known.get(query)
        if known is None:
            known = self._known[query] = self._ask(query)
        return known

    def _ask(self, query: AccessQuery) -> AccessDecision:
        if threading.get_ident() == self._thread:
            return self._answer(query)

        async def answer() -> AccessDecision:
            try:
                return self._answer(query)
            except AnswerNeeded as needed:
                return await retry_with_answers(partial(self._answer, query), needed)

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result()

    def _answer(self, query: AccessQuery) -> AccessDecision:
        user = self._user
        if query.service_account is not None:
            namespace, name = query.service_account
            user = UserInfo(
                f"system:serviceaccount:{namespace}:{name}",
                ("system:serviceaccounts", f"system:serviceaccounts:{namespace}"),
            )
        if query.path:
            info = RequestInfo(False, query.path, query.verb)
        else:
            info = RequestInfo(
                True,
                "",
                query.verb,
                query.group,
                "*",
                query.namespace,
                query.resource,
                query.name,
                query.subresource,
            )
        decision = self._decide(user, info)
        return AccessDecision(bool(decision.allowed), decision.reason)
