"""The rules of each kind for writes: resets, generation, allocation, deletion.

`base.py` has the interface and the common rules, `table.py` the rows; a kind with more rules has
its own file.
"""

from transom.apiserver.core.strategies.base import Strategy
from transom.apiserver.core.strategies.table import strategy_for

__all__ = ["Strategy", "strategy_for"]
