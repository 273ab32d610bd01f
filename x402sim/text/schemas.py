"""The descriptions in a JSON schema that is made of types, as they read in a docstring."""

import inspect
from typing import Any


def unindented(schema: Any) -> Any:
    """Return a schema whose descriptions have no indentation of the source.

    Python before 3.13 keeps that in a docstring, and Markdown takes it for code.
    """
    match schema:
        case dict():
            return {
                name: inspect.cleandoc(value)
                if name == "description" and isinstance(value, str)
                else unindented(value)
                for name, value in schema.items()
            }
        case list() | tuple():
            return [unindented(each) for each in schema]
        case _:
            return schema
