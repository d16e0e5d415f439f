"""Combines the audit policy and the log: starts the event of each request that the policy
records.
"""

from __future__ import annotations

import asyncio
import random

from transom.apiserver.audit.event import AuditEvent, RequestSource
from transom.apiserver.audit.log import AuditLog
from transom.apiserver.audit.policy import NONE, AuditPolicy
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.kit.uuids import random_uuid

AUDIT_ID_HEADER = b"Audit-Id"
_LONGEST_ID = 64


class Auditor:
    def __init__(self, policy: AuditPolicy, log: AuditLog, rng: random.Random) -> None:
        self._policy = policy
        self._rng = rng
        self.log = log

    def start(self) -> None:
        """Raises OSError when the log cannot be written."""
        self.log.open()

    async def stop(self) -> None:
        """Returns when everything is written."""
        await asyncio.get_running_loop().run_in_executor(None, self.log.close)

    def begin(
        self, source: RequestSource, user: UserInfo | None, info: RequestInfo, now: float
    ) -> AuditEvent | None:
        """None if the policy does not record the request. `user` is None without credentials."""
        decision = self._policy.evaluate(user, info)
        if decision.level == NONE:
            return None
        given = source.audit_id
        if not given or len(given) > _LONGEST_ID:
            given = random_uuid(self._rng)
        return AuditEvent(self.log.write, decision, given, source, user, info, now)
