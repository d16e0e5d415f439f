"""What may be evaluated on the event loop."""

from __future__ import annotations

import pytest

from transom.kit.cel.types import DYN
from transom.machinery.cel.brief import BriefBudget, BriefBudgetSpentError
from transom.machinery.cel.environment import kubernetes_environment


@pytest.mark.parametrize(
    ("expression", "brief"),
    [
        ("x == 'a'", True),
        ("x.matches('a+')", True),
        ("x.find('a+') == x", True),
        ("x.matches(x)", False),
        ("[x].all(y, y.matches(x))", False),
        ("x.find(x) == x", False),
        ("x.findAll(x).size() == 1", False),
    ],
)
def test_patterns_of_the_data_are_compiled_in_a_worker(expression: str, brief: bool) -> None:
    program = kubernetes_environment().compile(expression, {"x": DYN}, {}).program
    if brief:
        assert BriefBudget().evaluate(program, {"x": "a"}).value is True
    else:
        with pytest.raises(BriefBudgetSpentError):
            BriefBudget().evaluate(program, {"x": "a"})
    assert program.evaluate({"x": "a"}, 1_000_000).value is True
