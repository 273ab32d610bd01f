"""The client of the control API in TypeScript, `guide/sim.ts`: `python -m tests.renew --only guide`.

Its types and methods are those of the OpenAPI document and of the ready line's schema; what is the
same whatever the API has is in `sim.template.ts`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from x402sim.world.control.app import openapi
from x402sim.world.control.messages import Ready

TEMPLATE = Path(__file__).with_name("sim.template.ts")
NAMES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}  # fmt: skip
Json = dict[str, Any]


def client() -> str:
    """Return the file."""
    api = openapi()
    _, ready = msgspec.json.schema_components([Ready], ref_template="#/components/schemas/{name}")
    named = {**ready, **api["components"]["schemas"]}
    del named["ErrorBody"]  # it is thrown as an error
    types = "\n".join(interface(*each) for each in named.items())
    methods = "\n".join(
        method(verb.upper(), path, about)
        for path, item in api["paths"].items()
        for verb, about in item.items()
    )
    text = TEMPLATE.read_text(encoding="utf-8")
    return text.replace("// TYPES\n", types).replace("  // METHODS\n", methods)


def interface(name: str, schema: Json) -> str:
    """Return the declaration of an object's type."""
    about = schema["description"].partition("\n")[0]
    return f"/** {about} */\nexport interface {name} {{\n{''.join(fields(schema))}}}\n"


def fields(schema: Json) -> Iterator[str]:
    for name, each in schema["properties"].items():
        if "description" in each:
            yield f"  /** {each['description']} */\n"
        yield f"  {field(name, each, schema)};\n"


def field(name: str, each: Json, of: Json) -> str:
    return f"{name}{'' if name in of.get('required', ()) else '?'}: {type_of(each)}"


def type_of(schema: Json) -> str:
    """Return the type of a value."""
    match schema:
        case {"$ref": path}:
            return str(path).rpartition("/")[2]
        case {"enum": values}:
            return " | ".join(map(json.dumps, values))
        case {"anyOf": kinds}:
            return " | ".join(map(type_of, kinds))
        case {"type": "array", "prefixItems": each}:
            return f"[{', '.join(map(type_of, each))}]"
        case {"type": "array", "items": each}:
            return f"{type_of(each)}[]"
        case {"type": "object", "additionalProperties": dict(each)}:
            return f"Record<string, {type_of(each)}>"
        case {"properties": each}:
            return f"{{ {'; '.join(field(*it, schema) for it in each.items())} }}"
        case {"pattern": str(pattern)} if pattern.startswith("^0x"):
            return "`0x${string}`"  # as viem has it
    return NAMES[schema["type"]]


def method(verb: str, path: str, about: Json) -> str:
    """Return the method of an operation."""
    ((media, answer),) = about["responses"]["200"]["content"].items()
    if verb == "POST":
        body, is_needed = about["requestBody"], about["requestBody"]["required"]
        taken = body["content"]["application/json"]["schema"]
    else:
        query, is_needed = [each for each in about["parameters"] if "name" in each], False
        taken = {"properties": {each["name"]: each["schema"] for each in query}}
    has_fields = "$ref" in taken or taken["properties"]
    given = f"given: {type_of(taken)}{'' if is_needed else ' = {}'}" if has_fields else ""
    sent = f'"{path}", {"given" if has_fields else "{}"}'
    if media == "application/json":
        gives, call = type_of(answer["schema"]), f'this.#json("{verb}", {sent})'
    else:
        gives, call = "JournalEvent[]", f"this.#events({sent})"
    head = f"{about['operationId']}({given}): Promise<{gives}>"
    return f"  /** {about['summary']} */\n  {head} {{\n    return {call};\n  }}\n"
