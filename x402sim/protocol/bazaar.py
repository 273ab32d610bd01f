"""The extension bazaar: how a shop declares a resource, and why no index lists the resource.

In version 2 a 402 declares in `extensions.bazaar`: `info` has the input and the output, `schema` is
the JSON Schema of `info`. The payer repeats `extensions` and `resource`, and the facilitator lists
the resource of a settled payment. In version 1 `outputSchema` of an offer declares, in any form.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from x402sim.protocol.messages import Wire, fields_of
from x402sim.protocol.rpc_values import shown
from x402sim.protocol.x402 import AnyRequirements, Version

BAZAAR = "bazaar"
"""The name of the extension."""
RESPONSES = "EXTENSION-RESPONSES"
"""The header of a facilitator's answers to verify and settle: what became of each extension."""
DISCOVERY_PATH = "/discovery/resources"
"""The path of a facilitator's list of resources."""
BODY_METHODS = ("POST", "PUT", "PATCH")
METHODS = ("GET", "HEAD", "DELETE", *BODY_METHODS)
BODY_TYPES = ("json", "form-data", "text")
_PLACE = f"extensions.{BAZAAR}"
_SDK = "An SDK's declareDiscoveryExtension (declare_discovery_extension) writes all of it."


class Item(Wire, frozen=True, omit_defaults=True):
    """One resource, with the ways to pay; `last_updated` is in Unix seconds.

    `extensions` has the 402's declaration, with input and output.
    """

    resource: str
    type: Literal["http", "mcp"]
    x402_version: Version
    accepts: list[AnyRequirements]
    last_updated: int
    description: str | None = None
    mime_type: str | None = None
    extensions: dict[str, Any] | None = None


class Fault(NamedTuple):
    """A reason for which no index lists a resource, and what to do."""

    about: str
    seen: str
    wanted: str
    do: str

    def __str__(self) -> str:
        return f"{self.about}: {self.seen}; wanted {self.wanted}"


def faults_in(fields: Mapping[str, Any], version: Version | None) -> Iterator[Fault]:
    """Yield the faults of the declaration in a 402 or a payment; none without a declaration."""
    said = fields_of(fields.get("extensions")).get(BAZAAR)
    if said is None:
        return
    if version == 1:
        wanted = "outputSchema of the offer, with `input`, or version 2"
        do = "Write accepts[].outputSchema, or send version 2: no index reads this place."
        yield Fault(_PLACE, "in version 1, which has no extensions", wanted, do)
        return
    info, schema = (fields_of(said).get(name) for name in ("info", "schema"))
    if not isinstance(info, dict):
        has = ", ".join(fields_of(said))
        seen = f"without info, but {has[:80]}" if has else "without info"
        do = "Send the wire's form, not the form of a route's settings. " + _SDK
        if BAZAAR in fields_of(said):
            do = f"Unwrap one level: the value of {_PLACE} is {{info, schema}} itself."
        yield Fault(_PLACE, seen, "{info, schema}", do)
        return
    wrong = list(_of_input(fields_of(info.get("input"))))
    yield from wrong
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or "input" not in properties:
        seen = "nothing" if schema is None else "a schema of something else"
        do = "Describe `info` (properties.input), not the body of your endpoint. " + _SDK
        yield Fault(f"{_PLACE}.schema", seen, "the JSON Schema of info, with `input`", do)
    elif not wrong and (unlike := difference(schema, info)):
        do = "Change info or schema: facilitators must not list what does not fit."
        yield Fault(f"{_PLACE}.info", unlike, "as the schema beside it says", do)
    url = fields_of(fields.get("resource")).get("url")
    if not _is_url(url):
        seen = "nothing" if url is None else shown(url)
        do = "Send `resource: {url}` beside `accepts`; a payer repeats the whole object."
        yield Fault("resource.url", seen, "a whole URL", do)


def _of_input(fields: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults of `info.input`: the fields that the extension's text demands."""

    def wrong(name: str, wanted: str, do: str) -> Fault:
        seen = shown(fields[name]) if name in fields else "nothing"
        return Fault(f"{_PLACE}.info.input.{name}", seen, wanted, do)

    method = fields.get("method")
    match fields.get("type"):
        case "http" if method not in METHODS:
            do = "Name the method. The SDKs' middleware adds it; without that, add it yourself."
            yield wrong("method", f"one of {', '.join(METHODS)}", do)
        case "http" if method in BODY_METHODS and fields.get("bodyType") not in BODY_TYPES:
            do = "Name the kind of body, beside an example `body`."
            yield wrong("bodyType", f"one of {', '.join(BODY_TYPES)}", do)
        case "http" if method in BODY_METHODS and "body" not in fields:
            yield wrong("body", "an example", "Add an example of the body.")
        case "mcp" if not (fields.get("tool") or fields.get("toolName")):
            yield wrong("tool", "the tool's name", "Name the tool as tools/call does.")
        case "mcp" if not isinstance(fields.get("inputSchema"), dict):
            yield wrong("inputSchema", "a JSON Schema", "Repeat the tool's inputSchema.")
        case "http" | "mcp":
            return
        case _:
            yield wrong("type", "http or mcp", "Say which of the two the resource is.")


def _is_url(text: Any) -> bool:
    try:
        parts = urlsplit(text if isinstance(text, str) else "")
    except ValueError:  # such as "http://["
        return False
    return bool(parts.scheme and parts.netloc)


_NEVER = ("outputSchema", "discoverable", "extensions")
_NOT_DECLARED = ("resource", "description", "mimeType")
"""Fields that an offer of version 2 has not: with these, a hosted index did not list a resource."""


def faults_of_402(fields: Mapping[str, Any], version: Version | None) -> Iterator[Fault]:
    """Yield why no index lists the resource of a 402 that declares it in some form."""
    yield from faults_in(fields, version)
    is_declared = BAZAAR in fields_of(fields.get("extensions"))
    listed = fields.get("accepts")
    for number, offer in enumerate(listed if isinstance(listed, list) else ()):
        if version == 1:
            yield from faults_in(fields_of(offer), version)
            continue
        names = (*_NEVER, *_NOT_DECLARED) if is_declared else _NEVER
        if odd := [name for name in names if name in fields_of(offer)]:
            do = f"Write {_PLACE} and `resource` beside `accepts`, not in an offer."
            yield Fault(f"accepts[{number}]", ", ".join(odd), "version 2's fields only", do)


# --- the key of a resource ---------------------------------------------------------------

_TEMPLATE = re.compile(r"/[a-zA-Z0-9_/:.\-~%]+")


def listed_url(url: str, said: Mapping[str, Any]) -> str:
    """Return the URL by which an index lists a resource: no query, and the template of the path."""
    parts, template = urlsplit(url), said.get("routeTemplate")
    path = parts.path
    if isinstance(template, str) and _TEMPLATE.fullmatch(template) and _is_plain(template):
        path = template
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _is_plain(template: str) -> bool:
    """Tell whether a template leads to no other path or host, at any depth of its escapes."""
    for _ in range(5):
        further = unquote(template)
        if further == template:
            return ".." not in template and "://" not in template
        template = further
    return False


# --- JSON Schema -------------------------------------------------------------------------

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def difference(schema: Any, value: Any, where: str = "info") -> str:
    """Return the first difference between a value and a JSON Schema; "" without one.

    Compares type, const, enum, required, properties and additionalProperties only: the SDKs'
    schemas have nothing else, and a hostile pattern cannot hold the server up.
    """
    left = [(schema, value, where)]
    while left:
        schema, value, where = left.pop()
        if not isinstance(schema, dict):
            continue
        wanted = _TYPES.get(str(schema.get("type")))
        is_other = isinstance(value, bool) and wanted is not bool
        if wanted and (is_other or not isinstance(value, wanted)):
            return f"{where} is no {schema['type']}"
        if "const" in schema and not _is_same(value, schema["const"]):
            return f"{where} is {shown(value)}, not {shown(schema['const'])}"
        several = schema.get("enum")
        if isinstance(several, list) and not any(_is_same(value, each) for each in several):
            return f"{where} is {shown(value)}, none of {shown(several)}"
        if not isinstance(value, dict):
            continue
        known, required = fields_of(schema.get("properties")), schema.get("required")
        for each in required if isinstance(required, list) else ():
            if isinstance(each, str) and each not in value:
                return f"{where} has no {each}"
        for each in value:
            if each not in known and schema.get("additionalProperties") is False:
                return f"{where} has {each}, which its schema does not know"
        for each in reversed(value):
            if each in known:
                left.append((known[each], value[each], f"{where}.{each}"))
    return ""


def _is_same(value: Any, wanted: Any) -> bool:
    """Tell whether two values are equal; the contents of objects and lists are not compared."""
    if isinstance(value, dict | list):
        return type(value) is type(wanted)
    return bool(value == wanted)


def declaration(method: str, output: Any, body: Any = None) -> dict[str, Any]:
    """Return the extension of a resource over HTTP, with examples of body and answer."""
    sent: dict[str, Any] = {"type": "http", "method": method}
    allowed: dict[str, Any] = {"type": {"const": "http"}, "method": {"enum": [method]}}
    if body is not None:
        sent |= {"bodyType": "json", "body": body}
        allowed |= {"bodyType": {"enum": ["json"]}, "body": {"type": "object"}}
    info = {"input": sent, "output": {"type": "json", "example": output}}
    wanted = {"type": "object", "properties": allowed, "required": list(sent)}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"input": wanted},
        "required": ["input"],
    }
    return {BAZAAR: {"info": info, "schema": schema}}
