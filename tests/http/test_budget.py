from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transom.http.budget import BudgetLimits, ByteBudget

LIMITS = BudgetLimits(server=1000, user=600, largest_window=100, smallest_window=1, patience=10)


def test_the_window_shrinks_as_the_budget_is_used() -> None:
    budget = ByteBudget(
        BudgetLimits(server=1 << 20, user=1 << 19, largest_window=4096, smallest_window=16)
    )
    windows = [budget.window("jane")]
    for number in range(6):
        budget.hold(number, "jane", 80_000, 0.0)
        windows.append(budget.window("jane"))
    assert windows[0] == 4096
    assert windows == sorted(windows, reverse=True)
    assert budget.window("john") > budget.window("jane")
    for number in range(6):
        budget.release(number)
    assert (budget.window("jane"), budget.total, budget.used_by("jane")) == (4096, 0, 0)


def test_a_full_server_drops_the_longest_stalled_of_the_heaviest_user() -> None:
    budget = ByteBudget(LIMITS)
    budget.hold("old and light", "john", 100, 0.0)
    budget.hold("first", "jane", 300, 1.0)
    budget.hold("second", "jane", 250, 2.0)
    assert budget.victims(100.0) == []
    budget.hold("third", "ann", 400, 3.0)
    assert budget.victims(100.0) == ["first"]


def test_a_user_over_his_budget_loses_his_own_connections_only() -> None:
    budget = ByteBudget(LIMITS)
    budget.hold("other", "john", 100, 0.0)
    for number in range(7):
        budget.hold(number, "jane", 100, float(number))
    assert budget.victims(100.0) == [0]


def test_a_client_that_has_just_read_is_not_dropped() -> None:
    budget = ByteBudget(LIMITS)
    budget.hold("slow", "jane", 700, 0.0)
    assert budget.victims(9.0) == []
    budget.progress("slow", 5.0)
    assert budget.victims(14.0) == []
    assert budget.victims(15.0) == ["slow"]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.sampled_from(["a", "b"]), st.integers(0, 900), st.booleans()
        )
    )
)
def test_accounts_always_add_up_and_dropping_the_victims_restores_the_limits(
    steps: list[tuple[int, str, int, bool]],
) -> None:
    budget = ByteBudget(LIMITS)
    held: dict[int, tuple[str, int]] = {}
    for number, owner, size, keep in steps:
        if keep:
            owner = held[number][0] if number in held else owner
            budget.hold(number, owner, size, 0.0)
            held[number] = (owner, size)
        else:
            budget.release(number)
            held.pop(number, None)
        assert budget.total == sum(size for _, size in held.values())
        for user in "ab":
            assert budget.used_by(user) == sum(
                size for owner, size in held.values() if owner == user
            )
    for victim in budget.victims(100.0):
        budget.release(victim)
    assert budget.total <= LIMITS.server
    assert all(budget.used_by(user) <= LIMITS.user for user in "ab")
