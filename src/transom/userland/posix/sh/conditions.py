"""bash's `[[ ... ]]`."""

from __future__ import annotations

from transom.userland.posix.commands import basic
from transom.userland.posix.sh import patterns, words
from transom.userland.posix.sh.state import ShellState
from transom.userland.posix.sh.tree import Literal, Word
from transom.userland.regex import compile_pattern


async def double_bracket(shell: ShellState, operands: tuple[Word, ...]) -> int:
    evaluator = _Evaluator(shell, operands)
    try:
        return int(not await evaluator.either())
    except basic.TestFault as fault:
        shell.complain(f"[[: {fault}")
        return 2


class _Evaluator:
    def __init__(self, shell: ShellState, operands: tuple[Word, ...]) -> None:
        self.shell = shell
        self.operands = operands
        self.position = 0

    def plain(self, offset: int = 0) -> str:
        index = self.position + offset
        if index >= len(self.operands):
            return ""
        word = self.operands[index]
        return (
            word[0].text
            if len(word) == 1 and isinstance(word[0], Literal) and not word[0].quoted
            else ""
        )

    async def either(self) -> bool:
        result = await self.both()
        while self.plain() == "||":
            self.position += 1
            result = await self.both() or result
        return result

    async def both(self) -> bool:
        result = await self.primary()
        while self.plain() == "&&":
            self.position += 1
            result = await self.primary() and result
        return result

    async def primary(self) -> bool:
        if self.plain() == "!":
            self.position += 1
            return not await self.primary()
        if self.plain() == "(":
            self.position += 1
            result = await self.either()
            self.position += 1
            return result
        first = self.plain()
        if (
            first.startswith("-")
            and self.position + 1 < len(self.operands)
            and self.plain(1) not in ("&&", "||", ")")
        ):
            operand = await words.expand_text(self.shell, self.operands[self.position + 1])
            unary = basic.unary_test(self.shell.process, first, operand)
            if unary is not None:
                self.position += 2
                return unary
        if self.position >= len(self.operands):
            raise basic.TestFault("argument expected")
        left = await words.expand_text(self.shell, self.operands[self.position])
        operator = self.plain(1)
        if (
            operator in ("=", "==", "!=", "=~")
            or operator in ("<", ">")
            or operator.startswith("-")
        ):
            right = self.operands[self.position + 2]
            self.position += 3
            if operator == "=~":
                return (
                    compile_pattern(await words.expand_text(self.shell, right)).search(left)
                    is not None
                )
            if operator in ("=", "==", "!="):
                return patterns.matches_glob(await words.pattern(self.shell, right), left) == (
                    operator != "!="
                )
            compared = basic.binary_test(
                self.shell.process, left, operator, await words.expand_text(self.shell, right)
            )
            if compared is None:
                raise basic.TestFault(f"{operator}: unknown operand")
            return compared
        self.position += 1
        return left != ""
