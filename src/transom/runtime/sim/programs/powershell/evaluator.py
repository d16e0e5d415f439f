"""PowerShell that runs: variables, statements, pipelines and commands."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from transom.runtime.sim.programs.powershell import formatting, members
from transom.runtime.sim.programs.powershell.automatic import AUTOMATIC, error_record
from transom.runtime.sim.programs.powershell.lexer import Node
from transom.runtime.sim.programs.powershell.operators import ALIASES, OPERATORS, expression, like
from transom.runtime.sim.programs.powershell.parser import parse
from transom.runtime.sim.programs.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    TypeName,
    items,
    number,
    text,
    truth,
    unrolled,
)
from transom.runtime.sim.programs.process import Exit, Process
from transom.runtime.sim.programs.win.variables import Variables

Emit = Callable[[Any], None]


class Break(Exception):
    pass


class Continue(Exception):
    pass


class Return(Exception):
    pass


class Thrown(PowerShellError):
    """By `throw`, or by an error that is to stop the script."""


class Evaluator:
    def __init__(self, process: Process) -> None:
        self.process: Process = process
        self.env: Variables = Variables(process.env)
        self.scopes: list[dict[str, Any]] = [{}]
        self.functions: dict[str, ScriptBlock] = {}
        self.success: bool = True
        self.last_exit: int | None = None
        self.exited: int | None = None  # how the last script file ended, if by `exit`
        self.errors: list[PowerShellError] = []
        self.trying = 0
        self.script = ""
        self.held: list[Any] = []  # objects for the console that wait for their like
        self.emit: Emit = self.show
        self.jobs: list[Any] = []
        self.allocated = 0

    # The console
    def show(self, value: Any) -> None:
        for item in items(value):
            if isinstance(item, PsObject):
                self.held.append(item)
            else:
                self.flush()
                self.process.write(formatting.show([item]))

    def flush(self) -> None:
        if self.held:
            held, self.held = self.held, []
            self.process.write(formatting.show(held))

    def write_error(self, error: PowerShellError) -> None:
        """An error after which the script goes on."""
        self.success = False
        self.errors.insert(0, error)
        preference = text(self.get("erroractionpreference")).lower()
        if preference == "stop":
            raise Thrown(error.message, error.category, error.identity, where=error.where, value=error.value)
        if preference not in ("silentlycontinue", "ignore"):
            self.tell(error)

    def tell(self, error: PowerShellError) -> None:
        self.flush()
        where = f"{error.where} : " if error.where else ""
        lines = [f"{where}{error.message}"]
        if not error.where or error.identity == "CommandNotFoundException":
            first = next((line for line in self.script.splitlines() if line.strip()), "").strip()
            lines += ["At line:1 char:1", f"+ {first[:110]}", "+ " + "~" * min(len(first), 110)]
        lines += [f"    + CategoryInfo          : {error.category}", f"    + FullyQualifiedErrorId : {error.identity}", " "]
        self.process.stderr.write("".join(line + "\r\n" for line in lines).encode("utf-8", "surrogateescape"))

    # Variables
    def get(self, name: str) -> Any:
        name = name.lower()
        scope, colon, rest = name.partition(":")
        if colon:
            if scope == "env":
                return self.env.get(rest)
            name = rest
        for variables in reversed(self.scopes):
            if name in variables:
                return variables[name]
        automatic = AUTOMATIC.get(name)
        return automatic(self) if automatic is not None else None

    def put(self, name: str, value: Any) -> None:
        written = name.partition(":")[2]
        name = name.lower()
        scope, colon, rest = name.partition(":")
        if colon:
            if scope == "env":
                if value is None or text(value) == "":
                    self.env.pop(written, None)
                else:
                    self.env[written] = text(value)
                return
            self.scopes[0 if scope in ("global", "script") else -1][rest] = value
            return
        self.scopes[-1][name] = value

    # Ways in
    async def run_script(self, source: str) -> None:
        """Raises Exit, Thrown or ParseFault."""
        self.script = source
        await self.block(parse(source))
        self.flush()

    async def block(self, node: Node) -> None:
        for statement in node[1]:
            try:
                await self.execute(statement)
            except Thrown:
                raise
            except PowerShellError as error:
                if self.trying:
                    raise
                self.write_error(error)
            if self.emit == self.show:
                self.flush()

    async def collect(self, node: Node) -> list[Any]:
        """What a statement puts out."""
        out: list[Any] = []
        saved, self.emit = self.emit, out.append
        try:
            await (self.block(node) if node[0] == "block" else self.execute(node))
        finally:
            self.emit = saved
        return out

    # Statements
    async def execute(self, node: Node) -> None:
        run = _STATEMENTS.get(node[0])
        if run is not None:
            await run(self, node)
            return
        value = await self.value(node)
        if node[0] != "change":
            self.success = True
            if value is not None:
                for item in items(value):
                    self.emit(item)

    async def _if(self, node: Node) -> None:
        for condition, body in node[1]:
            if truth(await self.value(condition)):
                await self.block(body)
                return
        if node[2] is not None:
            await self.block(node[2])

    async def _once(self, body: Node) -> bool:
        """A turn of a loop; False after `break`."""
        await self.process.breathe()
        try:
            await self.block(body)
        except Continue:
            return True
        except Break:
            return False
        return True

    async def _while(self, node: Node) -> None:
        while truth(await self.value(node[1])):
            if not await self._once(node[2]):
                return

    async def _do(self, node: Node) -> None:
        while await self._once(node[2]):
            if truth(await self.value(node[1])) == node[3]:
                return

    async def _for(self, node: Node) -> None:
        _, start, condition, step, body = node
        if start is not None:
            await self.value(start)
        while condition is None or truth(await self.value(condition)):
            if not await self._once(body):
                return
            if step is not None:
                await self.value(step)

    async def _foreach(self, node: Node) -> None:
        values = await self.value(node[2])
        for item in values if isinstance(values, range) else items(values):
            self.put(node[1], item)
            if not await self._once(node[3]):
                return

    async def _switch(self, node: Node) -> None:
        _, mode, subject, branches = node
        for item in items(await self.value(subject)):
            self.put("_", item)
            matched = False
            try:
                for pattern, body in branches:
                    if pattern is None:
                        continue
                    if await self._switched(mode, pattern, item):
                        matched = True
                        await self.block(body)
                if not matched:
                    for pattern, body in branches:
                        if pattern is None:
                            await self.block(body)
            except Break:
                return
            except Continue:
                continue

    async def _switched(self, mode: str, pattern: Node, item: Any) -> bool:
        if pattern[0] == "scriptblock":
            return truth(unrolled(await self.invoke(ScriptBlock(pattern[1][1], pattern[1][2]), [], item)))
        wanted = await self.value(pattern)
        if mode == "wildcard":
            return like(item, wanted)
        if mode == "regex":
            return expression(text(wanted)).search(text(item)) is not None
        return truth(OPERATORS["-eq"](item, wanted))

    async def _try(self, node: Node) -> None:
        _, body, handler, finally_ = node
        self.trying += 1
        try:
            try:
                await self.block(body)
            finally:
                self.trying -= 1
        except PowerShellError as error:
            if handler is None:
                raise
            self.errors.insert(0, error)
            saved = self.scopes[-1].get("_")
            self.put("_", error_record(error))
            await self.block(handler)
            self.put("_", saved)
        finally:
            if finally_ is not None:
                await self.block(finally_)

    async def _function(self, node: Node) -> None:
        self.functions[node[1].lower().removeprefix("global:")] = ScriptBlock(node[2][1], node[2][2])

    async def _param(self, node: Node) -> None:
        for name, default in node[1]:
            if name.lower() not in self.scopes[-1]:
                self.put(name, await self.value(default) if default is not None else None)

    async def _return(self, node: Node) -> None:
        if node[1] is not None:
            await self.execute(node[1])
        raise Return

    async def _exit(self, node: Node) -> None:
        code = int(number(await self.value(node[1]))) if node[1] is not None else (self.last_exit or 0)
        self.flush()
        raise Exit(code & 0xFFFFFFFF)

    async def _throw(self, node: Node) -> None:
        value = await self.value(node[1]) if node[1] is not None else "ScriptHalted"
        message = text(value)
        raise Thrown(message, f"OperationStopped: ({message}:String) [], RuntimeException", message, value=value)

    async def _break(self, node: Node) -> None:
        raise Break

    async def _continue(self, node: Node) -> None:
        raise Continue

    async def _chain(self, node: Node) -> None:
        await self.execute(node[2])
        if self.success == (node[1] == "&&"):
            await self.execute(node[3])

    async def _pipeline(self, node: Node) -> None:
        stages = node[1]
        values: list[Any] = []
        for index, stage in enumerate(stages):
            last = index == len(stages) - 1
            if index == 0:
                values = await self.collect(stage)
            elif stage[0] == "command":
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
                raise PowerShellError("Expressions are only allowed as the first element of a pipeline.")

    async def _command_statement(self, node: Node) -> None:
        await self.command(node, None)

    async def _assign(self, node: Node) -> None:
        _, operator, target, source = node
        if source[0] in ("command", "pipeline", "collected", "assign"):
            inner = source[1] if source[0] == "collected" else source
            value = unrolled(await self.collect(inner)) if inner[0] != "assign" else await self._assigned(inner)
        else:
            value = await self.value(source)
        if operator != "=":
            value = OPERATORS[operator[0]](await self.value(target), value)
        await self.assign(target, value)
        self.success = True

    async def _assigned(self, node: Node) -> Any:
        await self._assign(node)
        return await self.value(node[2])

    async def assign(self, target: Node, value: Any) -> None:
        kind = target[0]
        if kind == "variable":
            self.put(target[1], value)
        elif kind == "cast":
            await self.assign(target[2], members.cast(target[1], value))
        elif kind == "array":
            values = items(value)
            for index, single in enumerate(target[1]):
                await self.assign(single, values[index] if index < len(values) else None)
        elif kind == "index":
            container, key = await self.value(target[1]), await self.value(target[2])
            if isinstance(container, Hashtable):
                container.put(key, value)
            elif isinstance(container, list):
                container[int(number(key))] = value
        elif kind == "member":
            container, name = await self.value(target[1]), text(await self.value(target[2]))
            if isinstance(container, Hashtable):
                container.put(name, value)
            elif isinstance(container, PsObject):
                known = next((key for key in container.properties if key.lower() == name.lower()), name)
                container.properties[known] = value
        elif kind != "static":
            raise PowerShellError("The assignment expression is not valid.")

    async def _redirected(self, node: Node) -> None:
        values = items(await self.value(node[1]))
        await self.redirect(node[2], values)

    async def redirect(self, redirects: Sequence[Node], values: list[Any]) -> None:
        """Output to a file. Streams other than the first are handled where they begin."""
        for _, stream, operator, target in redirects:
            path = await self.value(target)
            if stream not in ("1", "*") or path is None or text(path).startswith("&"):
                continue
            data = formatting.show(values).encode("utf-8", "surrogateescape")
            files = self.process.files
            if operator == ">>":
                files.append(text(path), data)
            else:
                files.write(text(path), data)
            return
        if not any(redirect[1] in ("1", "*") for redirect in redirects):
            for value in values:
                self.emit(value)

    # Expressions
    async def value(self, node: Node) -> Any:
        evaluate = _VALUES.get(node[0])
        if evaluate is not None:
            return await evaluate(self, node)
        return unrolled(await self.collect(node))

    async def _value(self, node: Node) -> Any:
        return node[1]

    async def _text(self, node: Node) -> str:
        return "".join([text(await self.value(part)) for part in node[1]])

    async def _variable(self, node: Node) -> Any:
        return self.get(node[1])

    async def _subexpression(self, node: Node) -> Any:
        return unrolled(await self.collect(node[1]))

    async def _list(self, node: Node) -> list[Any]:
        out: list[Any] = []
        for value in await self.collect(node[1]):
            out.extend(items(value) if isinstance(value, range) else [value])
        return out

    async def _array(self, node: Node) -> list[Any]:
        return [await self.value(item) for item in node[1]]

    async def _group(self, node: Node) -> Any:
        if node[1][0] == "assign":
            return await self._assigned(node[1])
        return await self.value(node[1])

    async def _hashtable(self, node: Node) -> Hashtable:
        out = Hashtable()
        for key, value in node[1]:
            out.put(await self.value(key), await self.value(value))
        return out

    async def _script_block(self, node: Node) -> ScriptBlock:
        return ScriptBlock(node[1][1], node[1][2])

    async def _type(self, node: Node) -> TypeName:
        return TypeName(node[1])

    async def _cast(self, node: Node) -> Any:
        return members.cast(node[1], await self.value(node[2]))

    async def _unary(self, node: Node) -> Any:
        value = await self.value(node[2])
        if node[1] == "-not":
            return not truth(value)
        if node[1] == "-join":
            return "".join(text(item) for item in items(value))
        if node[1] == "-split":
            return text(value).split()
        if node[1] == "-bnot":
            return ~int(number(value))
        return -number(value) if node[1] == "-" else number(value)

    async def _operator(self, node: Node) -> Any:
        operator = str(ALIASES.get(node[1], node[1]))
        left = await self.value(node[2])
        if operator == "-and":
            return truth(left) and truth(await self.value(node[3]))
        if operator == "-or":
            return truth(left) or truth(await self.value(node[3]))
        right = await self.value(node[3])
        if operator == "-match":
            return self._match(left, text(right))
        if operator == "-as":
            try:
                return members.cast(right.name if isinstance(right, TypeName) else text(right), left)
            except PowerShellError:
                return None
        return OPERATORS[operator](left, right)

    def _match(self, left: Any, pattern: str) -> Any:
        compiled = expression(pattern)
        if isinstance(left, list):
            return [item for item in left if compiled.search(text(item))]
        found = compiled.search(text(left))
        if found is not None:
            groups = Hashtable(enumerate((found[0], *found.groups())))
            groups.update(found.groupdict())
            self.put("matches", groups)
        return found is not None

    async def _change(self, node: Node) -> Any:
        old = number(await self.value(node[2]))
        new = old + (1 if node[1] == "++" else -1)
        await self.assign(node[2], new)
        return old if node[3] else new

    async def _index(self, node: Node) -> Any:
        container, key = await self.value(node[1]), await self.value(node[2])
        if isinstance(container, Hashtable):
            return container.find(key)
        if isinstance(key, list):
            return [members.item(container, int(number(one))) for one in key]
        if isinstance(container, PsObject):
            return container.get(text(key))
        return members.item(container, int(number(key)))

    async def _member(self, node: Node) -> Any:
        target = await self.value(node[1])
        name = text(await self.value(node[2]))
        if node[3] is None:
            return members.property_of(self, target, name)
        arguments = [await self.value(argument) for argument in node[3]]
        result = members.call(self, target, name, arguments)
        return await result if inspect.isawaitable(result) else result

    async def _static(self, node: Node) -> Any:
        target = await self.value(node[1])
        name = text(await self.value(node[2]))
        arguments = [await self.value(argument) for argument in node[3]] if node[3] is not None else None
        result = members.static(self, target.name if isinstance(target, TypeName) else text(target), name, arguments)
        return await result if inspect.isawaitable(result) else result

    # Commands
    async def invoke(
        self, block: ScriptBlock, arguments: list[Any], item: Any = None, named: dict[str, Any] | None = None
    ) -> list[Any]:
        """A script block's output."""
        out: list[Any] = []
        saved, self.emit = self.emit, out.append
        try:
            await self.call_block(block, arguments, item, named)
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
    ) -> None:
        scope: dict[str, Any] = {}
        rest = list(arguments)
        given = {key.lower(): value for key, value in (named or {}).items()}
        for name, default in block.parameters:
            key = name.lower()
            if key in given:
                scope[key] = given[key]
            elif rest:
                scope[key] = rest.pop(0)
            else:
                scope[key] = await self.value(default) if default is not None else None
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

    async def command(self, node: Node, given: list[Any] | None) -> None:
        from transom.runtime.sim.programs.powershell.calls import run_command

        await run_command(self, node, given)


_STATEMENTS: dict[str, Callable[[Evaluator, Node], Awaitable[None]]] = {
    "block": Evaluator.block,
    "if": Evaluator._if,
    "while": Evaluator._while,
    "do": Evaluator._do,
    "for": Evaluator._for,
    "foreach": Evaluator._foreach,
    "switch": Evaluator._switch,
    "try": Evaluator._try,
    "function": Evaluator._function,
    "param": Evaluator._param,
    "return": Evaluator._return,
    "exit": Evaluator._exit,
    "throw": Evaluator._throw,
    "break": Evaluator._break,
    "continue": Evaluator._continue,
    "chain": Evaluator._chain,
    "pipeline": Evaluator._pipeline,
    "command": Evaluator._command_statement,
    "assign": Evaluator._assign,
    "redirected": Evaluator._redirected,
}

_VALUES: dict[str, Callable[[Evaluator, Node], Awaitable[Any]]] = {
    "value": Evaluator._value,
    "text": Evaluator._text,
    "variable": Evaluator._variable,
    "subexpression": Evaluator._subexpression,
    "list": Evaluator._list,
    "array": Evaluator._array,
    "group": Evaluator._group,
    "hashtable": Evaluator._hashtable,
    "scriptblock": Evaluator._script_block,
    "type": Evaluator._type,
    "cast": Evaluator._cast,
    "unary": Evaluator._unary,
    "operator": Evaluator._operator,
    "change": Evaluator._change,
    "index": Evaluator._index,
    "member": Evaluator._member,
    "static": Evaluator._static,
}
