"""How functions and script blocks bind their parameters: types, ValidateSet, ValidateRange, Mandatory."""

from __future__ import annotations

from typing import Any, Final

from transom.userland.powershell.casts import cast_value
from transom.userland.powershell.operators import expression
from transom.userland.powershell.tree import ScriptParameter
from transom.userland.powershell.values import PowerShellError, PsObject, to_number, to_text

SWITCHES: Final = ("switch", "management.automation.switchparameter", "switchparameter")
_CHECKED: Final = (
    "int",
    "int32",
    "int64",
    "long",
    "double",
    "float",
    "decimal",
    "byte",
    "datetime",
)


def parameter_value(parameter: ScriptParameter, value: Any, function: str) -> Any:
    """The value as the parameter's type; raises PowerShell's error for one that is not valid."""
    if value is None:
        return "" if parameter.type == "string" else value
    if parameter.type:
        if isinstance(value, PsObject) and parameter.type not in ("string", *_CHECKED):
            return value
        try:
            value = cast_value(parameter.type, value)
        except PowerShellError as problem:
            raise PowerShellError(
                f"Cannot process argument transformation on parameter '{parameter.name}'. "
                f"{problem.message}",
                f"InvalidData: (:) [{function}], ParameterBindingArgumentTransformationException",
                f"ParameterArgumentTransformationError,{function}",
                where=function,
            ) from None
    shown = to_text(value)
    if parameter.choices and shown.lower() not in [one.lower() for one in parameter.choices]:
        raise invalid_argument(
            parameter,
            function,
            f'The argument "{shown}" does not belong to the set "{",".join(parameter.choices)}" '
            "specified by the ValidateSet attribute. Supply an argument that is in the set and "
            "then try the command again.",
        )
    if parameter.not_empty and value in ("", []):
        raise invalid_argument(
            parameter,
            function,
            "The argument is null or empty. Provide an argument that is not null or empty, and "
            "then try the command again.",
        )
    if parameter.pattern and expression(parameter.pattern).search(shown) is None:
        raise invalid_argument(
            parameter,
            function,
            f'The argument "{shown}" does not match the "{parameter.pattern}" pattern. Supply an '
            f'argument that matches "{parameter.pattern}" and try the command again.',
        )
    if parameter.limits is not None:
        low, high = parameter.limits
        number = to_number(value)
        if number > high:
            text = f"is greater than the maximum allowed range of {to_text(high)}. Supply an "
            text += f"argument that is less than or equal to {to_text(high)} and then try"
            raise invalid_argument(
                parameter, function, f"The {shown} argument {text} the command again."
            )
        if number < low:
            text = f"is less than the minimum allowed range of {to_text(low)}. Supply an "
            text += f"argument that is greater than or equal to {to_text(low)} and then try"
            raise invalid_argument(
                parameter, function, f"The {shown} argument {text} the command again."
            )
    return value


def invalid_argument(parameter: ScriptParameter, function: str, why: str) -> PowerShellError:
    return PowerShellError(
        f"Cannot validate argument on parameter '{parameter.name}'. {why}",
        f"InvalidData: (:) [{function}], ParameterBindingValidationException",
        f"ParameterArgumentValidationError,{function}",
        where=function,
    )


def missing_parameter(parameter: ScriptParameter, function: str) -> PowerShellError:
    """As PowerShell reports it when it cannot ask for the value."""
    return PowerShellError(
        "Cannot process command because of one or more missing mandatory parameters: "
        f"{parameter.name}.",
        f"InvalidArgument: (:) [{function}], ParameterBindingException",
        f"MissingMandatoryParameter,{function}",
        where=function,
    )
