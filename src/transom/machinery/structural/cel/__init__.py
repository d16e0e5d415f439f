"""Rules of `x-kubernetes-validations`, written in CEL.

`check.check_rules` judges the rules of a definition, `rules.compile_rules` makes them ready, and what that gives judges
objects. The CEL library is large and imported when the first rule is met. What it cannot do: it knows maps but no types
of our own, so a field that does not exist is found when a rule runs, not when it is compiled; and inside an object a
`date-time` is text, to be read with `timestamp()`.
"""

from transom.machinery.structural.cel.check import check_rules
from transom.machinery.structural.cel.rules import Rules, compile_rules

__all__ = ["Rules", "check_rules", "compile_rules"]
