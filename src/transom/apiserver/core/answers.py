"""Answers from other servers that authentication and authorization wait for.

Authenticators and authorizers are plain functions. One that needs an answer from another server
(the keys of a token issuer, the decision of a webhook) raises `AnswerNeeded`. The request chain
awaits the answer and runs its step again, and the step finds the answer with `find_answer`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
_MOST = 100  # answers that one step of a request may need

_answers: ContextVar[dict[Hashable, Any] | None] = ContextVar("answers", default=None)


class AnswerNeeded(Exception):
    """`fetch` gets the answer that `find_answer` then returns for the key; it does not raise."""

    def __init__(self, key: Hashable, fetch: Callable[[], Awaitable[Any]]) -> None:
        super().__init__("an answer of another server is needed")
        self.key = key
        self.fetch = fetch


def find_answer(key: Hashable) -> Any:
    """The answer that this request already got, or None."""
    answers = _answers.get()
    return None if answers is None else answers.get(key)


async def retry_with_answers(work: Callable[[], Awaitable[T] | T], needed: AnswerNeeded) -> T:
    """Runs `work` again with the answer, until it needs no further one. Answers are kept for this
    request only.
    """
    answers = dict(_answers.get() or {})
    token = _answers.set(answers)
    try:
        for _ in range(_MOST):
            answers[needed.key] = await needed.fetch()
            try:
                result = work()
                return await result if isinstance(result, Awaitable) else result
            except AnswerNeeded as another:
                needed = another
        raise RuntimeError("a request needs too many answers of other servers")
    finally:
        _answers.reset(token)
