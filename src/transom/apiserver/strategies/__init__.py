"""What is particular to each kind when it is written: resets, generation, allocation, deletion.

`base.py` holds the shape and the common rules, `table.py` the rows; a kind with more to say has a file of its own.
"""

from transom.apiserver.strategies.base import Strategy
from transom.apiserver.strategies.table import strategy_for

__all__ = ["Strategy", "strategy_for"]
