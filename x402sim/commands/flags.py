"""Gives a command the options of the suite's table of flags."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from x402sim.commands.common import number, whole
from x402sim.suite.flags import FLAGS, Flag

_PARSERS: dict[type, Callable[[Any], Any]] = {float: number, int: whole}
Command = TypeVar("Command", bound=Callable[..., None])


def takes(*names: str) -> Callable[[Command], Command]:
    """Give a command the flags of these names, which its `**given` receives; all without names."""
    options = [_parameter(flag) for flag in FLAGS if not names or flag.name in names]

    def give(command: Command) -> Command:
        signature = inspect.signature(command)
        own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
        by_name = [each.replace(kind=each.KEYWORD_ONLY) for each in (*own, *options)]
        vars(command)["__signature__"] = signature.replace(parameters=by_name)
        return command

    return give


def _parameter(flag: Flag) -> inspect.Parameter:
    names = [flag.option, flag.also] if flag.also else [flag.option]
    parser = _PARSERS.get(flag.kind)
    option = typer.Option(
        *names, metavar=flag.metavar, envvar=flag.variable, help=flag.help, parser=parser
    )
    kind: Any = list[str] if flag.is_repeatable else flag.kind
    default = False if flag.kind is bool else flag.default
    if default is None:
        kind |= None
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )
