from __future__ import annotations

from transom.client.backoff import KeyedBackoff


def test_waits_double_and_are_forgotten_after_ten_good_minutes() -> None:
    backoff = KeyedBackoff()
    now, waits = 0.0, []
    for _ in range(8):
        assert not backoff.waits("k", now, now + backoff.get("k"))
        now += backoff.get("k")
        backoff.next("k", now, now)
        waits.append(backoff.get("k"))
        assert backoff.waits("k", now, now + backoff.get("k") - 0.1)
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]
    assert backoff.waits("k", now + 600, now + 600)
    assert not backoff.waits("k", now + 601, now + 601)
    backoff.next("k", now + 601, now + 601)
    assert backoff.get("k") == 10 and backoff.get("other") == 0
