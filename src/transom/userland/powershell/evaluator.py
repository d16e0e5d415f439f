"""The PowerShell interpreter: variables, statements, pipelines and commands."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Self

from transom.userland.limits import bounded
from transom.userland.powershell import formatting, members
from transom.userland.powershell.calls import run_command
from transom.userland.powershell.classes import (
    cast_defined,
    define_class,
    define_enum,
    defined_method,
    defined_static,
    set_member,
)
from transom.userland.powershell.cmdlets_files import set_file_property
from transom.userland.powershell.control import Break, Continue, Return, Thrown
from transom.userland.powershell.defined_types import MethodScope
from transom.userland.powershell.exceptions import catches, error_record, is_exception_type
from transom.userland.powershell.operators import ALIASES, OPERATORS, expression, matches_wildcard
from transom.userland.powershell.parameters import SWITCHES, missing_parameter, parameter_value
from transom.userland.powershell.parser import parse_powershell
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.static_members import static_member
from transom.userland.powershell.tree import (
    ArrayExpression,
    ArrayLiteral,
    Assignment,
    BinaryExpression,
    BreakStatement,
    CastExpression,
    ClassStatement,
    CommandNode,
    ContinueStatement,
    DoStatement,
    EnumStatement,
    ExitStatement,
    ExpandableString,
    ForeachStatement,
    ForStatement,
    FunctionStatement,
    HashtableLiteral,
    IfStatement,
    IncrementExpression,
    IndexExpression,
    LabeledStatement,
    MemberExpression,
    NamedBlock,
    ParamStatement,
    Parenthesized,
    PipelineChain,
    PipelineNode,
    PsNode,
    RedirectedExpression,
    ReturnStatement,
    ScriptBlockLiteral,
    ScriptParameter,
    StatementBlock,
    StatementValue,
    StaticMemberExpression,
    StreamRedirect,
    SubExpression,
    SwitchStatement,
    ThrowStatement,
    TrapStatement,
    TryStatement,
    TypeLiteral,
    UnaryExpression,
    ValueLiteral,
    VariableReference,
    WhileStatement,
)
from transom.userland.powershell.values import (
    CUSTOM_OBJECT,
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    TypeName,
    VariableLink,
    to_bool,
    to_items,
    to_number,
    to_text,
    unrolled,
)
from transom.userland.powershell.xml_objects import XmlObject
from transom.userland.process import Exit, Process


class PowerShellEvaluator(PowerShellSession):
    """Runs scripts in a session."""

    def fork(self, process: Process) -> Self:
        """A new session in another process."""
        return type(self)(process, self.cmdlets)

    # Entry points
    async def run_script(self, source: str) -> None:
        """Raises Exit, Thrown or ParseFault."""
        self.script = source
        await self.block(parse_powershell(source))
        self.flush()

    async def block(self, node: StatementBlock) -> None:
        for statement in node.statements:
            try:
                await self.execute(statement)
            except PowerShellError as error:
                if await self._trapped(node, error):
                    continue
                if self.trying or isinstance(error, Thrown):
                    raise
                self.write_error(error)
            if self.emit == self.show:
                self.flush()

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
        self.functions[name] = ScriptBlock(node.script.parameters, node.script.body)

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
            raise Thrown(
                error.message, error.category, error.identity, where=error.where, value=error.value
            )
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

    async def _assign(self, node: Assignment) -> None:
        operator, target, source = node.operator, node.target, node.source
        if isinstance(source, CommandNode | PipelineNode | StatementValue | Assignment):
            inner = source.statement if isinstance(source, StatementValue) else source
            value = (
                await self._assigned(inner)
                if isinstance(inner, Assignment)
                else unrolled(await self.collect(inner))
            )
        else:
            value = await self.value(source)
        if operator != "=":
            value = OPERATORS[operator[0]](await self.value(target), value)
        await self.assign(target, value)
        self.success = True

    async def _assigned(self, node: Assignment) -> Any:
        await self._assign(node)
        return await self.value(node.target)

    async def _assign_several(self, target: ArrayLiteral, values: list[Any]) -> None:
        """`$first, $second, $rest = ...`: the last variable takes the rest."""
        last = len(target.items) - 1
        for index, single in enumerate(target.items):
            one = values[index] if index < len(values) else None
            await self.assign(single, values[index:] if index == last < len(values) - 1 else one)

    async def assign(self, target: PsNode, value: Any) -> None:
        if isinstance(target, VariableReference):
            self.put(target.name, value)
        elif isinstance(target, CastExpression):
            await self.assign(target.operand, cast_defined(self, target.type, value))
        elif isinstance(target, ArrayLiteral):
            await self._assign_several(target, to_items(value))
        elif isinstance(target, IndexExpression):
            container, key = await self.value(target.target), await self.value(target.index)
            if isinstance(container, Hashtable):
                container.put(key, value)
            elif isinstance(container, list):
                container[int(to_number(key))] = value
        elif isinstance(target, MemberExpression):
            container, name = (
                await self.value(target.target),
                to_text(await self.value(target.name)),
            )
            if isinstance(container, Hashtable | XmlObject):
                container.put(name, value)
            elif isinstance(container, PsObject):
                if container.kind.startswith("System.IO.") and set_file_property(
                    self, container, name, value
                ):
                    return
                if isinstance(container, VariableLink):
                    container.set(value)
                    return
                if container.kind == CUSTOM_OBJECT:
                    members.check_property(container, name)
                known = next(
                    (key for key in container.properties if key.lower() == name.lower()), name
                )
                container.properties[known] = value
        elif isinstance(target, StaticMemberExpression):
            owner = await self.value(target.target)
            name = to_text(await self.value(target.name))
            set_member(self, owner.name if isinstance(owner, TypeName) else "", name, value)
        else:
            raise PowerShellError("The assignment expression is not valid.")

    async def _redirected(self, node: RedirectedExpression) -> None:
        values = to_items(await self.value(node.value))
        await self.redirect(node.redirects, values)

    async def redirect(self, redirects: Sequence[StreamRedirect], values: list[Any]) -> None:
        """Writes output to a file. Streams other than the first are redirected where they begin."""
        for redirect in redirects:
            path = await self.value(redirect.target)
            if redirect.stream not in ("1", "*") or path is None or to_text(path).startswith("&"):
                continue
            data = formatting.format_objects(values).encode("utf-8", "surrogateescape")
            files = self.process.files
            if redirect.operator == ">>":
                files.append(to_text(path), data)
            else:
                files.write(to_text(path), data)
            return
        if not any(redirect.stream in ("1", "*") for redirect in redirects):
            for value in values:
                self.emit(value)

    # Expressions
    async def value(self, node: PsNode) -> Any:
        evaluate = _VALUES.get(type(node))
        if evaluate is not None:
            return await evaluate(self, node)
        return unrolled(await self.collect(node))

    async def _value(self, node: ValueLiteral) -> Any:
        return node.value

    async def _text(self, node: ExpandableString) -> str:
        return bounded("".join([to_text(await self.value(part)) for part in node.parts]))

    async def _variable(self, node: VariableReference) -> Any:
        if self.strict and not self.defines(node.name):
            raise PowerShellError(
                f"The variable '${node.name}' cannot be retrieved because it has not been set.",
                f"InvalidOperation: ({node.name}:String) [], RuntimeException",
                "VariableIsUndefined",
            )
        return self.get(node.name)

    async def _subexpression(self, node: SubExpression) -> Any:
        return unrolled(await self.collect(node.body))

    async def _list(self, node: ArrayExpression) -> list[Any]:
        out: list[Any] = []
        for value in await self.collect(node.body):
            out.extend(to_items(value) if isinstance(value, range) else [value])
        return out

    async def _array(self, node: ArrayLiteral) -> list[Any]:
        return [await self.value(item) for item in node.items]

    async def _group(self, node: Parenthesized) -> Any:
        if isinstance(node.inner, Assignment):
            return await self._assigned(node.inner)
        return await self.value(node.inner)

    async def _hashtable(self, node: HashtableLiteral) -> Hashtable:
        out = Hashtable()
        for key, value in node.pairs:
            out.put(await self.value(key), await self.value(value))
        return out

    async def _script_block(self, node: ScriptBlockLiteral) -> ScriptBlock:
        return ScriptBlock(node.parameters, node.body)

    async def _type(self, node: TypeLiteral) -> TypeName:
        return TypeName(node.name)

    async def _cast(self, node: CastExpression) -> Any:
        operand = node.operand
        if node.type.lower() == "ref" and isinstance(operand, VariableReference):
            return VariableLink(self.get(operand.name), partial(self.put, operand.name))
        return cast_defined(self, node.type, await self.value(node.operand))

    async def _unary(self, node: UnaryExpression) -> Any:
        value = await self.value(node.operand)
        if node.operator == "-not":
            return not to_bool(value)
        if node.operator == "-join":
            return "".join(to_text(item) for item in to_items(value))
        if node.operator == "-split":
            return to_text(value).split()
        if node.operator == "-bnot":
            return ~int(to_number(value))
        return -to_number(value) if node.operator == "-" else to_number(value)

    async def _operator(self, node: BinaryExpression) -> Any:
        operator = str(ALIASES.get(node.operator, node.operator))
        left = await self.value(node.left)
        if operator == "-and":
            return to_bool(left) and to_bool(await self.value(node.right))
        if operator == "-or":
            return to_bool(left) or to_bool(await self.value(node.right))
        right = await self.value(node.right)
        if operator in ("-match", "-cmatch"):
            return self._match(left, to_text(right), operator == "-match")
        if operator == "-as":
            try:
                return cast_defined(
                    self,
                    right.name if isinstance(right, TypeName) else to_text(right),
                    left,
                )
            except PowerShellError:
                return None
        return OPERATORS[operator](left, right)

    def _match(self, left: Any, pattern: str, fold: bool) -> Any:
        compiled = expression(pattern, fold)
        if isinstance(left, list):
            return [item for item in left if compiled.search(to_text(item))]
        found = compiled.search(to_text(left))
        if found is not None:
            groups = Hashtable(enumerate((found[0], *found.groups())))
            groups.update(found.groupdict())
            self.put("matches", groups)
        return found is not None

    async def _change(self, node: IncrementExpression) -> Any:
        old = to_number(await self.value(node.target))
        new = old + (1 if node.operator == "++" else -1)
        await self.assign(node.target, new)
        return old if node.postfix else new

    async def _index(self, node: IndexExpression) -> Any:
        container, key = await self.value(node.target), await self.value(node.index)
        if isinstance(container, Hashtable):
            return container.find(key)
        if isinstance(container, list) and isinstance(key, str) and not key.lstrip("-").isdigit():
            named = [one for one in container if isinstance(one, PsObject)]
            return next(
                (one for one in named if to_text(one.get("Name")).lower() == key.lower()), None
            )
        if isinstance(key, list):
            return [members.item_at(container, int(to_number(one))) for one in key]
        if isinstance(container, PsObject):
            return container.get(to_text(key))
        return members.item_at(container, int(to_number(key)))

    async def _member(self, node: MemberExpression) -> Any:
        target = await self.value(node.target)
        name = to_text(await self.value(node.name))
        if node.arguments is None:
            if self.strict > 1 and isinstance(target, PsObject):
                members.check_property(target, name)
            return members.get_property(self, target, name)
        arguments = [await self.value(argument) for argument in node.arguments]
        result = defined_method(self, target, name, arguments)
        if result is None:
            result = members.call_method(self, target, name, arguments)
        return await result if inspect.isawaitable(result) else result

    async def _static(self, node: StaticMemberExpression) -> Any:
        target = await self.value(node.target)
        name = to_text(await self.value(node.name))
        arguments = (
            [await self.value(argument) for argument in node.arguments]
            if node.arguments is not None
            else None
        )
        kind = target.name if isinstance(target, TypeName) else to_text(target)
        made = self.types.get(kind.lower())
        result = (
            defined_static(self, made, name, arguments)
            if made is not None
            else static_member(self, kind, name, arguments)
        )
        return await result if inspect.isawaitable(result) else result

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
        scope: dict[str, Any] = dict(variables or {})
        rest = list(arguments)
        given = {key.lower(): value for key, value in (named or {}).items()}
        bound = Hashtable()
        for parameter in block.parameters:
            key = parameter.name.lower()
            if key in given:
                scope[key] = bound[parameter.name] = parameter_value(parameter, given[key], name)
            elif rest and parameter.type not in SWITCHES:
                scope[key] = bound[parameter.name] = parameter_value(parameter, rest.pop(0), name)
            elif parameter.from_pipeline and items is not None:
                scope[key] = parameter_value(parameter, items[-1] if items else None, name)
            elif parameter.mandatory:
                raise missing_parameter(parameter, name)
            elif parameter.type in SWITCHES and parameter.default is None:
                scope[key] = False
            else:
                scope[key] = parameter_value(parameter, await self._default(parameter), name)
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

    async def _call_named(
        self,
        block: ScriptBlock,
        blocks: dict[str, StatementBlock],
        scope: dict[str, Any],
        items: list[Any] | None,
        name: str,
    ) -> None:
        """`begin` once, `process` for each item, `end` once."""
        fed = [parameter for parameter in block.parameters if parameter.from_pipeline]
        self.scopes.append(scope)
        try:
            if "begin" in blocks:
                await self.block(blocks["begin"])
            for item in items if items is not None else [scope.get("_")]:
                await self.process.breathe()
                scope["_"] = item
                if items is not None:
                    for parameter in fed:
                        scope[parameter.name.lower()] = parameter_value(parameter, item, name)
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
    Assignment: PowerShellEvaluator._assign,
    RedirectedExpression: PowerShellEvaluator._redirected,
}

_VALUES: dict[type, Callable[[PowerShellEvaluator, Any], Awaitable[Any]]] = {
    ValueLiteral: PowerShellEvaluator._value,
    ExpandableString: PowerShellEvaluator._text,
    VariableReference: PowerShellEvaluator._variable,
    SubExpression: PowerShellEvaluator._subexpression,
    ArrayExpression: PowerShellEvaluator._list,
    ArrayLiteral: PowerShellEvaluator._array,
    Parenthesized: PowerShellEvaluator._group,
    HashtableLiteral: PowerShellEvaluator._hashtable,
    ScriptBlockLiteral: PowerShellEvaluator._script_block,
    TypeLiteral: PowerShellEvaluator._type,
    CastExpression: PowerShellEvaluator._cast,
    UnaryExpression: PowerShellEvaluator._unary,
    BinaryExpression: PowerShellEvaluator._operator,
    IncrementExpression: PowerShellEvaluator._change,
    IndexExpression: PowerShellEvaluator._index,
    MemberExpression: PowerShellEvaluator._member,
    StaticMemberExpression: PowerShellEvaluator._static,
}
