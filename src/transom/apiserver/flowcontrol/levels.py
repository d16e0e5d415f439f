"""One priority level: its seats, and the queues in which flows wait for a seat.

Each flow is assigned a small hand of queues by its hash and joins the shortest, so that one busy
flow fills only a few queues. Queues are served with start-time fair queuing: a queue is charged for
the seats of its requests, and the one with the lowest charge is next. Runs on the event loop;
independent of users and requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections import Counter, deque
from itertools import count

from transom.http.messages import HttpResponse
from transom.kit.clock import Clock

WAIT_LIMIT = 15.0  # seconds in a queue, a quarter of the request timeout
_order = count()


class RequestRejected(Exception):
    """The request cannot be served now: `reason` as in Kubernetes' metrics."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def too_many_requests_response() -> HttpResponse:
    text = b"Too many requests, please try again later.\n"
    return HttpResponse(
        429,
        [
            (b"Content-Type", b"text/plain; charset=utf-8"),
            (b"X-Content-Type-Options", b"nosniff"),
            (b"Cache-Control", b"no-cache, private"),
            (b"Retry-After", b"1"),
        ],
        text,
    )


class _Waiter:
    __slots__ = ("future", "seats")

    def __init__(self, future: asyncio.Future[None], seats: int) -> None:
        self.future = future
        self.seats = seats


class _Queue:
    __slots__ = ("lined_up", "paid", "waiters")

    def __init__(self) -> None:
        self.waiters: deque[_Waiter] = deque()
        self.lined_up = False  # is in the level's heap of queues
        self.paid = 0.0  # its progress in the level's virtual time


class PriorityLevel:
    """`limit` 0 means no limit."""

    __slots__ = (
        "_clock",
        "_hand",
        "_length",
        "_queues",
        "_ready",
        "_virtual",
        "executing",
        "limit",
        "name",
        "rejected",
        "uid",
        "waiting",
    )

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.uid = ""
        self.limit = 0
        self.executing = 0  # seats in use
        self.waiting = 0  # requests in queues
        self.rejected: Counter[tuple[str, str]] = Counter()  # by schema and reason
        self._clock = clock
        self._queues: list[_Queue] = []
        self._hand = 1
        self._length = 0
        self._virtual = 0.0
        self._ready: list[tuple[float, int, _Queue]] = []  # the heap of queues, by virtual time

    def configure(
        self, uid: str, limit: int, queues: int = 0, hand: int = 1, length: int = 0
    ) -> None:
        """Without queues, requests without a seat are rejected. Queued requests stay queued."""
        self.uid = uid
        self.limit = limit
        self._hand = min(hand, queues) if queues else 1
        self._length = length
        # Fewer queues: the last ones get no new requests and drain through `_ready`.
        self._queues = self._queues[:queues] + [_Queue() for _ in range(queues - len(self._queues))]
        self._dispatch()

    def deal(self, flow: str) -> tuple[int, ...]:
        """The queues that a flow may use."""
        if not self._queues:
            return ()
        value = int.from_bytes(
            hashlib.sha256(flow.encode(errors="surrogatepass")).digest()[:8], "little"
        )
        cards = list(range(len(self._queues)))
        hand = []
        for _ in range(self._hand):
            value, card = divmod(value, len(cards))
            hand.append(cards.pop(card))
        return tuple(hand)

    def has_room(self, seats: int) -> bool:
        """Whether a request may start immediately: there are free seats and no queued requests."""
        if not self.limit:
            return True
        # A request that needs more seats than exist runs when the level is idle.
        return not self.waiting and (self.executing + seats <= self.limit or not self.executing)

    def take(self, seats: int) -> None:
        self.executing += seats

    def release(self, seats: int) -> None:
        self.executing -= seats
        if self.waiting:
            self._dispatch()

    async def wait(self, hand: tuple[int, ...], seats: int) -> None:
        """Returns with the seats acquired, or raises Rejected."""
        queues = [self._queues[i] for i in hand if i < len(self._queues)] or self._queues[:1]
        if not queues:
            raise RequestRejected("concurrency-limit")
        queue = min(queues, key=lambda q: len(q.waiters))
        if len(queue.waiters) >= self._length:
            raise RequestRejected("queue-full")
        waiter = _Waiter(asyncio.get_running_loop().create_future(), seats)
        if not queue.lined_up:
            queue.lined_up = True
            queue.paid = max(queue.paid, self._virtual)
            heapq.heappush(self._ready, (queue.paid, next(_order), queue))
        queue.waiters.append(waiter)
        self.waiting += 1
        timer = self._clock.call_later(WAIT_LIMIT, _give_up, waiter.future)
        self._dispatch()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if not waiter.future.cancelled() and waiter.future.exception() is None:
                self.release(seats)  # granted at the moment of the cancellation
            self._leave(queue, waiter)
            raise
        except RequestRejected:
            self._leave(queue, waiter)
            raise
        finally:
            timer.cancel()

    def _leave(self, queue: _Queue, waiter: _Waiter) -> None:
        if waiter in queue.waiters:
            queue.waiters.remove(waiter)
            self.waiting -= 1
            self._dispatch()  # it may have been blocking all others

    def _dispatch(self) -> None:
        ready = self._ready
        while ready:
            paid, _, queue = ready[0]
            waiters = queue.waiters
            while waiters and waiters[0].future.done():  # cancelled; it removes itself
                waiters.popleft()
                self.waiting -= 1
            if not waiters:
                heapq.heappop(ready)
                queue.lined_up = False
                continue
            seats = waiters[0].seats
            if self.limit and self.executing + seats > self.limit and self.executing:
                return
            waiter = waiters.popleft()
            self.waiting -= 1
            self.executing += seats
            self._virtual = paid
            queue.paid = paid + seats
            if waiters:
                heapq.heapreplace(ready, (queue.paid, next(_order), queue))
            else:
                heapq.heappop(ready)
                queue.lined_up = False
            waiter.future.set_result(None)


def _give_up(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(RequestRejected("time-out"))
