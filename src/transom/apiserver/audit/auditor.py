"""The policy and the log together: begins the record of each request that is to be recorded."""

from __future__ import annotations

import asyncio
import random
import uuid

from transom.apiserver.audit.event import AuditEvent
from transom.apiserver.audit.log import AuditLog
from transom.apiserver.audit.policy import NONE, Policy
from transom.apiserver.context import User
from transom.apiserver.requestinfo import RequestInfo
from transom.http.messages import Request

HEADER = b"Audit-Id"
_LONGEST_ID = 64


class Auditor:
    def __init__(self, policy: Policy, log: AuditLog, rng: random.Random) -> None:
        self._policy = policy
        self._rng = rng
        self.log = log

    def start(self) -> None:
        """Raises OSError when the log cannot be written."""
        self.log.open()

    async def stop(self) -> None:
        """Returns when everything is written."""
        await asyncio.get_running_loop().run_in_executor(None, self.log.close)

    def begin(self, request: Request, user: User | None, info: RequestInfo, now: float) -> AuditEvent | None:
        """None when nothing of it is recorded. `user` is None when nobody could be authenticated."""
        verdict = self._policy.judge(user, info)
        if verdict.level == NONE:
            return None
        given = request.header(b"audit-id")
        if not given or len(given) > _LONGEST_ID:
            given = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        return AuditEvent(self.log.write, verdict, given, request, user, info, now)
