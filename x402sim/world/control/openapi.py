"""The OpenAPI document of the control API, which GET /_sim/openapi.json answers.

An operation is a row of the table of actions. Its schemas are those of what the action takes and of
what its signature says that it returns, so they cannot differ from what is read and sent.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from x402sim.protocol.messages import ErrorBody
from x402sim.text.schemas import unindented
from x402sim.version import VERSION
from x402sim.world.transport.faults import Fault

Json = dict[str, Any]
_NETWORK = "The network of the server to act on, by name; default the first."
_LINES = {"schema": {"type": "string", "description": "One JSON object a line."}}


def document(rows: Sequence[tuple[str, str, Any, Any, str]]) -> Json:
    """Return the OpenAPI 3.1 document of these actions.

    A row is a method, a path, the action, the kind of message that it takes (`Any` for a fault),
    and what it does.
    """
    answers = [inspect.signature(action).return_annotation for _, _, action, _, _ in rows]
    takes = [Fault if kind is Any else kind for _, _, _, kind, _ in rows]
    kinds = [*takes, ErrorBody, *(each for each in answers if each is not Response)]
    template = "#/components/schemas/{name}"
    found, schemas = unindented(msgspec.json.schema_components(kinds, ref_template=template))
    schema_of = dict(zip(kinds, found, strict=True))
    paths: dict[str, Json] = {}
    for (method, path, action, _, does), taken, answer in zip(rows, takes, answers, strict=True):
        fields = schemas[taken.__name__] if taken is Fault else schemas.pop(taken.__name__)
        media = {"application/json": {"schema": schema_of.get(answer)}}
        content = {"application/x-ndjson": _LINES} if answer is Response else media
        operation: Json = {
            "operationId": camel(action.__name__),
            "summary": does,
            "parameters": [{"$ref": "#/components/parameters/network"}],
            "responses": {
                "200": {"description": "It is done.", "content": content},
                "default": {"$ref": "#/components/responses/Refused"},
            },
        }
        required = fields.get("required", [])
        if method == "GET":
            operation["parameters"] += [
                {"name": name, "in": "query", "required": name in required, "schema": schema}
                for name, schema in fields["properties"].items()
            ]
        else:
            sent = {"schema": schema_of[Fault] if taken is Fault else fields}
            body = {"required": bool(required), "content": {"application/json": sent}}
            operation["requestBody"] = body
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.1",
        "info": {"title": "x402sim's control API", "version": VERSION},
        "servers": [{"url": "/_sim"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": {
                "network": {
                    "name": "network",
                    "in": "query",
                    "description": _NETWORK,
                    "schema": {"type": "string"},
                }
            },
            "responses": {
                "Refused": {
                    "description": "It is refused, and why.",
                    "content": {"application/json": {"schema": schema_of[ErrorBody]}},
                }
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed if the server has a --control-token.",
                }
            },
        },
    }


def camel(name: str) -> str:
    """Return a name of Python as JSON and JavaScript write it."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
