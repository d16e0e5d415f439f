"""The PowerShell interpreter: variables, statements, pipelines and commands."""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Self

from transom.userland.powershell import formatting
from transom.userland.powershell.calls import run_command
from transom.userland.powershell.classes import (
    define_class,
    define_enum,
)
from transom.userland.powershell.control import Break, Continue, Return, Thrown
from transom.userland.powershell.defined_types import MethodScope
from transom.userland.powershell.exceptions import (
    catches,
    error_record,
    is_exception_type,
    open_failure,
)
from transom.userland.powershell.expression_evaluator import ExpressionEvaluator
from transom.userland.powershell.operators import OPERATORS, expression, matches_wildcard
from transom.userland.powershell.parameters import (
    SWITCHES,
    invalid_argument,
    missing_parameter,
    parameter_value,
)
from transom.userland.powershell.parser import parse_powershell
from transom.userland.powershell.tree import (
    Assignment,
    BreakStatement,
    ClassStatement,
    CommandNode,
    ContinueStatement,
    DoStatement,
    EnumStatement,
    ExitStatement,
    ForeachStatement,
    ForStatement,
    FunctionStatement,
    IfStatement,
    IncrementExpression,
    LabeledStatement,
    NamedBlock,
    ParamStatement,
    PipelineChain,
    PipelineNode,
    PsNode,
    RedirectedExpression,
    ReturnStatement,
    ScriptBlockLiteral,
    ScriptParameter,
    StatementBlock,
    StreamRedirect,
    SwitchStatement,
    ThrowStatement,
    TrapStatement,
    TryStatement,
    WhileStatement,
)
from transom.userland.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    VariableScope,
    to_bool,
    to_items,
    to_number,
    to_text,
    unrolled,
)
from transom.userland.process import Exit, Process

_ANY_TYPE: Final = ("", "object", "psobject", "management.automation.psobject")


def _is_fed(parameter: ScriptParameter, item: Any) -> bool:
    """Whether an object in the pipeline has a value for the parameter."""
    has_property = isinstance(item, PsObject) and item.has(parameter.name)
    return parameter.from_pipeline or (parameter.from_property and has_property)


def _fed_value(parameter: ScriptParameter, item: Any) -> Any:
    """The whole object if its type fits, else the property with the parameter's name."""
    if parameter.from_pipeline and parameter.type in _ANY_TYPE:
        return item
    if parameter.from_property and isinstance(item, PsObject) and item.has(parameter.name):
        return item.get(parameter.name)
    return item


class PowerShellEvaluator(ExpressionEvaluator):
    """Runs scripts in a session."""

    def fork(self, process: Process) -> Self:
        """A new session in another process."""
        return type(self)(process, self.cmdlets)

    # Entry points
    async def run_script(self, source: str) -> None:
        """Raises Exit, Thrown or ParseFault."""
        self.script = source
        await self.block(parse_powershell(source, self.core))
        self.flush()

    async def block(self, node: StatementBlock) -> None:
        outer = self.extent
        try:
            await self._statements(node)
        finally:
            self.extent = outer

    async def _statements(self, node: StatementBlock) -> None:
        for statement, extent in node.located():
            self.extent = extent
            try:
                await self._checked(statement)
            except PowerShellError as error:
                error.extent = error.extent or extent
                if await self._trapped(node, error):
                    continue
                if self.trying or isinstance(error, Thrown):
                    raise
                self.write_error(error)
            if self.emit == self.show:
                self.flush()

    async def _checked(self, statement: PsNode) -> None:
        """Executes a statement; an error of a file that no cmdlet expects is the statement's."""
        try:
            await self.execute(statement)
        except OSError as problem:
            raise PowerShellError(
                problem.strerror or str(problem),
                "NotSpecified: (:) [], IOException",
                "System.IO.IOException",
            ) from problem

    async def _trapped(self, node: StatementBlock, error: PowerShellError) -> bool:
        """Runs the `trap` of a block; True if the script continues with the next statement."""
        for statement in node.statements:
            if isinstance(statement, TrapStatement) and catches(statement.handler.types, error):
                break
        else:
            return False
        self.remember(error)
        saved = self.scopes[-1].get("_")
        self.put("_", error_record(error))
        try:
            await self.block(statement.handler.body)
        except Continue:
            return True
        except Break:
            return False
        finally:
            self.put("_", saved)
        self.print_error(error)
        return True

    async def collect(self, node: PsNode) -> list[Any]:
        """The output of a statement."""
        out: list[Any] = []
        saved, self.emit = self.emit, out.append
        try:
            await (self.block(node) if isinstance(node, StatementBlock) else self.execute(node))
        finally:
            self.emit = saved
        return out

    # Statements
    async def execute(self, node: PsNode) -> None:
        await self.process.take_turn()
        run = _STATEMENTS.get(type(node))
        if run is not None:
            await run(self, node)
            return
        value = await self.value(node)
        if not isinstance(node, IncrementExpression):
            self.success = True
            if value is not None:
                for item in to_items(value):
                    self.emit(item)

    async def _if(self, node: IfStatement) -> None:
        for condition, body in node.branches:
            if to_bool(await self.value(condition)):
                await self.block(body)
                return
        if node.otherwise is not None:
            await self.block(node.otherwise)

    async def _once(self, body: StatementBlock, label: str) -> bool:
        """Runs one iteration of a loop; False after `break`. A jump with the label of another loop
        leaves this one.
        """
        await self.process.breathe()
        try:
            await self.block(body)
        except Continue as jump:
            if jump.label not in ("", label):
                raise
        except Break as jump:
            if jump.label not in ("", label):
                raise
            return False
        return True

    def _take_label(self) -> str:
        """The label of the loop that begins."""
        label, self.label = self.label, ""
        return label

    async def _labeled(self, node: LabeledStatement) -> None:
        self.label = node.label
        await self.execute(node.statement)

    async def _while(self, node: WhileStatement) -> None:
        label = self._take_label()
        while to_bool(await self.value(node.condition)):
            if not await self._once(node.body, label):
                return

    async def _do(self, node: DoStatement) -> None:
        label = self._take_label()
        while await self._once(node.body, label):
            if to_bool(await self.value(node.condition)) == node.until:
                return

    async def _for(self, node: ForStatement) -> None:
        label = self._take_label()
        if node.start is not None:
            await self.value(node.start)
        while node.condition is None or to_bool(await self.value(node.condition)):
            if not await self._once(node.body, label):
                return
            if node.step is not None:
                await self.value(node.step)

    async def _foreach(self, node: ForeachStatement) -> None:
        label = self._take_label()
        values = await self.value(node.items)
        for item in values if isinstance(values, range) else to_items(values):
            self.put(node.variable, item)
            if not await self._once(node.body, label):
                return

    async def _switch(self, node: SwitchStatement) -> None:
        label = self._take_label()
        for item in to_items(await self.value(node.subject)):
            self.put("_", item)
            matched = False
            try:
                for pattern, body in node.branches:
                    if pattern is None:
                        continue
                    if await self._switched(node.mode, pattern, item):
                        matched = True
                        await self.block(body)
                if not matched:
                    for pattern, body in node.branches:
                        if pattern is None:
                            await self.block(body)
            except Break as jump:
                if jump.label not in ("", label):
                    raise
                return
            except Continue as jump:
                if jump.label not in ("", label):
                    raise

    async def _switched(self, mode: str, pattern: PsNode, item: Any) -> bool:
        if isinstance(pattern, ScriptBlockLiteral):
            return to_bool(
                unrolled(await self.invoke(ScriptBlock(pattern.parameters, pattern.body), [], item))
            )
        wanted = await self.value(pattern)
        if mode == "wildcard":
            return matches_wildcard(item, wanted)
        if mode == "regex":
            return expression(to_text(wanted)).search(to_text(item)) is not None
        return to_bool(OPERATORS["-eq"](item, wanted))

    async def _try(self, node: TryStatement) -> None:
        self.trying += 1
        try:
            try:
                await self.block(node.body)
            finally:
                self.trying -= 1
        except PowerShellError as error:
            handler = next((one for one in node.handlers if catches(one.types, error)), None)
            if handler is None:
                raise
            self.remember(error)
            saved = self.scopes[-1].get("_")
            self.put("_", error_record(error))
            caught, self.caught = self.caught, error
            try:
                await self.block(handler.body)
            finally:
                self.caught = caught
                self.put("_", saved)
        finally:
            if node.cleanup is not None:
                await self.block(node.cleanup)

    async def _function(self, node: FunctionStatement) -> None:
        name = node.name.lower().removeprefix("global:")
        script = node.script
        self.functions[name] = ScriptBlock(
            script.parameters, script.body, script.binding, script.text
        )
        self.function_names[name] = node.name.removeprefix("global:")

    async def _param(self, node: ParamStatement) -> None:
        for parameter in node.parameters:
            if parameter.name.lower() not in self.scopes[-1]:
                self.put(parameter.name, await self._default(parameter))

    async def _default(self, parameter: ScriptParameter) -> Any:
        return await self.value(parameter.default) if parameter.default is not None else None

    async def _return(self, node: ReturnStatement) -> None:
        scope = self.scopes[-1]
        if isinstance(scope, MethodScope):
            scope.result = await self.value(node.value) if node.value is not None else None
        elif node.value is not None:
            await self.execute(node.value)
        raise Return

    async def _exit(self, node: ExitStatement) -> None:
        code = (
            int(to_number(await self.value(node.value)))
            if node.value is not None
            else (self.last_exit or 0)
        )
        self.flush()
        raise Exit(code & 0xFFFFFFFF)

    async def _throw(self, node: ThrowStatement) -> None:
        if node.value is None and self.caught is not None:  # throws the caught error again
            error = self.caught
            again = Thrown(
                error.message, error.category, error.identity, where=error.where, value=error.value
            )
            again.extent = error.extent
            raise again
        value = await self.value(node.value) if node.value is not None else "ScriptHalted"
        if isinstance(value, PsObject) and value.kind.endswith(".ErrorRecord"):
            value = value.get("Exception")
        message = to_text(value)
        if isinstance(value, PsObject) and is_exception_type(value.kind):
            reason = value.kind.rpartition(".")[2]
            raise Thrown(message, f"OperationStopped: (:) [], {reason}", message, value=value)
        raise Thrown(
            message,
            f"OperationStopped: ({message}:String) [], RuntimeException",
            message,
            value=value,
        )

    async def _break(self, node: BreakStatement) -> None:
        raise Break(node.label)

    async def _continue(self, node: ContinueStatement) -> None:
        raise Continue(node.label)

    async def _named_block(self, node: NamedBlock) -> None:
        await self.block(node.body)

    async def _trap(self, node: TrapStatement) -> None:
        """It takes effect when a statement of its block fails."""

    async def _enum(self, node: EnumStatement) -> None:
        define_enum(self, node)

    async def _class(self, node: ClassStatement) -> None:
        await define_class(self, node)

    async def _chain(self, node: PipelineChain) -> None:
        await self.execute(node.left)
        if self.success == (node.operator == "&&"):
            await self.execute(node.right)

    async def _pipeline(self, node: PipelineNode) -> None:
        stages = node.stages
        values: list[Any] = []
        for index, stage in enumerate(stages):
            last = index == len(stages) - 1
            if index == 0:
                values = await self.collect(stage)
            elif isinstance(stage, CommandNode):
                out: list[Any] = []
                saved = self.emit
                if not last:
                    self.emit = out.append
                try:
                    await self.command(stage, values)
                finally:
                    self.emit = saved
                values = out
            else:
                raise PowerShellError(
                    "Expressions are only allowed as the first element of a pipeline."
                )

    async def _command_statement(self, node: CommandNode) -> None:
        await self.command(node, None)

    async def _redirected(self, node: RedirectedExpression) -> None:
        values = to_items(await self.value(node.value))
        await self.redirect(node.redirects, values)

    async def redirect(self, redirects: Sequence[StreamRedirect], values: list[Any]) -> None:
        """Writes output to a file. Streams other than the first are redirected where they begin."""
        for redirect in redirects:
            path = await self.value(redirect.target)
            if redirect.stream not in ("1", "*") or path is None or to_text(path).startswith("&"):
                continue
            text = formatting.format_objects(values)
            self._write_redirected(to_text(path), text, append=redirect.operator == ">>")
            return
        if not any(redirect.stream in ("1", "*") for redirect in redirects):
            for value in values:
                self.emit(value)

    def _write_redirected(self, path: str, text: str, *, append: bool) -> None:
        """What Out-File does. Windows PowerShell writes UTF-16, also at the end of other files."""
        files = self.process.files
        if self.core:
            data = text.encode("utf-8", "surrogateescape")
        else:
            fresh = not (append and files.exists(path))
            data = (codecs.BOM_UTF16_LE if fresh else b"") + text.encode("utf-16-le", "replace")
        try:
            (files.append if append else files.write)(path, data)
        except OSError as problem:
            raise open_failure(path, files.absolute(path), problem, "out-file") from None

    # Commands
    async def invoke(
        self,
        block: ScriptBlock,
        arguments: list[Any],
        item: Any = None,
        named: dict[str, Any] | None = None,
    ) -> list[Any]:
        """The output of a script block."""
        out: list[Any] = []
        saved, self.emit = self.emit, out.append
        try:
            await self.call_block(block, arguments, item, named)
        finally:
            self.emit = saved
        return out

    async def invoke_with(self, block: ScriptBlock, arguments: list[Any]) -> list[Any]:
        """Like the method Invoke: with arguments, in a new scope."""
        out: list[Any] = []
        saved, self.emit = self.emit, out.append
        try:
            await self.call_block(block, arguments, own_scope=True)
        finally:
            self.emit = saved
        return out

    async def call_block(
        self,
        block: ScriptBlock,
        arguments: list[Any],
        item: Any = None,
        named: dict[str, Any] | None = None,
        *,
        own_scope: bool = False,
        variables: dict[str, Any] | None = None,
        items: list[Any] | None = None,
        name: str = "",
    ) -> None:
        """`items` come from the pipeline: `process` runs for each of them."""
        scope = VariableScope(variables)
        rest = list(arguments)
        given = {key.lower(): value for key, value in (named or {}).items()}
        bound = Hashtable()
        for parameter in block.parameters:
            key = parameter.name.lower()
            if key in given:
                scope[key] = bound[parameter.name] = parameter_value(parameter, given[key], name)
            elif rest and parameter.type not in SWITCHES:
                scope[key] = bound[parameter.name] = parameter_value(parameter, rest.pop(0), name)
            elif items is not None and _is_fed(parameter, items[-1] if items else None):
                fed = _fed_value(parameter, items[-1] if items else None)
                scope[key] = parameter_value(parameter, fed, name)
            elif parameter.mandatory:
                raise missing_parameter(parameter, name)
            elif parameter.type in SWITCHES and parameter.default is None:
                scope[key] = False
            else:
                scope[key] = parameter_value(parameter, await self._default(parameter), name)
            if bound.has(key) and parameter.check:
                await self._validate(parameter, scope[key], name)
        if block.parameters:
            scope.setdefault("psboundparameters", bound)
        blocks = {
            one.name: one.body for one in block.body.statements if isinstance(one, NamedBlock)
        }
        if blocks:
            scope["args"] = rest
            await self._call_named(block, blocks, scope, items, name)
            return
        if own_scope or block.parameters:
            scope["args"] = rest
            scope["_"] = item
            self.scopes.append(scope)
            try:
                await self.block(block.body)
            except Return:
                return
            finally:
                self.scopes.pop()
            return
        saved = self.scopes[-1].get("_")
        self.scopes[-1]["_"] = item
        try:
            await self.block(block.body)
        except Return:
            return
        finally:
            self.scopes[-1]["_"] = saved

    async def _validate(self, parameter: ScriptParameter, value: Any, name: str) -> None:
        """Runs the script of ValidateScript."""
        block = ScriptBlock((), parse_powershell(parameter.check, self.core))
        if not to_bool(unrolled(await self.invoke(block, [], value))):
            raise invalid_argument(
                parameter,
                name,
                f'The "{parameter.check}" validation script for the argument with value '
                f'"{to_text(value)}" did not return a result of True. Determine why the '
                "validation script failed, and then try the command again.",
            )

    async def _call_named(
        self,
        block: ScriptBlock,
        blocks: dict[str, StatementBlock],
        scope: VariableScope,
        items: list[Any] | None,
        name: str,
    ) -> None:
        """`begin` once, `process` for each item, `end` once."""
        bound = scope.get("psboundparameters") or {}
        fed = [
            parameter
            for parameter in block.parameters
            if parameter.from_pipeline or parameter.from_property
            if parameter.name not in bound
        ]
        self.scopes.append(scope)
        try:
            if "begin" in blocks:
                await self.block(blocks["begin"])
            for item in items if items is not None else [scope.get("_")]:
                await self.process.breathe()
                scope["_"] = item
                if items is not None:
                    for parameter in fed:
                        if _is_fed(parameter, item):
                            value = parameter_value(parameter, _fed_value(parameter, item), name)
                            scope[parameter.name.lower()] = value
                try:
                    if "process" in blocks:
                        await self.block(blocks["process"])
                except Return:
                    continue
            if "end" in blocks:
                await self.block(blocks["end"])
        except Return:
            return
        finally:
            self.scopes.pop()

    async def command(self, node: CommandNode, given: list[Any] | None) -> None:
        await run_command(self, node, given)


_STATEMENTS: dict[type, Callable[[PowerShellEvaluator, Any], Awaitable[None]]] = {
    StatementBlock: PowerShellEvaluator.block,
    IfStatement: PowerShellEvaluator._if,
    WhileStatement: PowerShellEvaluator._while,
    DoStatement: PowerShellEvaluator._do,
    ForStatement: PowerShellEvaluator._for,
    ForeachStatement: PowerShellEvaluator._foreach,
    SwitchStatement: PowerShellEvaluator._switch,
    TryStatement: PowerShellEvaluator._try,
    TrapStatement: PowerShellEvaluator._trap,
    NamedBlock: PowerShellEvaluator._named_block,
    LabeledStatement: PowerShellEvaluator._labeled,
    EnumStatement: PowerShellEvaluator._enum,
    ClassStatement: PowerShellEvaluator._class,
    FunctionStatement: PowerShellEvaluator._function,
    ParamStatement: PowerShellEvaluator._param,
    ReturnStatement: PowerShellEvaluator._return,
    ExitStatement: PowerShellEvaluator._exit,
    ThrowStatement: PowerShellEvaluator._throw,
    BreakStatement: PowerShellEvaluator._break,
    ContinueStatement: PowerShellEvaluator._continue,
    PipelineChain: PowerShellEvaluator._chain,
    PipelineNode: PowerShellEvaluator._pipeline,
    CommandNode: PowerShellEvaluator._command_statement,
    Assignment: ExpressionEvaluator.assign_statement,
    RedirectedExpression: PowerShellEvaluator._redirected,
}
