"""Where a user's goods come from: flags, an OpenAPI document, an API behind the service, Python.

All return `Good`, for `Settings(sells=...)`.
"""

import asyncio
import inspect
import json
import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from x402sim.http import web
from x402sim.protocol.messages import encode
from x402sim.protocol.money import to_base
from x402sim.service.goods import AMOUNT_USED, Answer, Good
from x402sim.service.settings import MOST_DECIMALS, Settings
from x402sim.service.upstream.api import MAX_ANSWER_BYTES, Api
from x402sim.text.program import install
from x402sim.text.words import as_given

Sells = Mapping[str, Any] | Sequence[Good]
"""Goods by "GET /weather 0.01": a body, or a function that makes one of a request."""
JSON = "application/json"


def read_good(text: str, answer: Answer, *, every_method: bool = False) -> Good:
    """Return the good that a text such as "GET /weather 0.01" names; raises `ValueError`.

    Without a method, a good is for GET, or with `every_method` for every method. "GET /chat upto
    0.05" is sold by the amount used, at most 0.05 tokens; "GET /chat 0.012 upto 0.05" always uses
    0.012. "GET /report permit2 0.02" is sold by Permit2, too.
    """
    parts = text.split()
    way = parts.pop(-2) if parts[-2:-1] in (["upto"], ["permit2"]) else ""
    if way == "upto" and len(parts) > 2 and not parts[-2].startswith("/"):
        answer = _using(answer, parts.pop(-2))
    match parts:
        case [path, price]:
            method = "" if every_method else "GET"
        case [method, path, price]:
            pass
        case _:
            wanted = "a path and a price in tokens, such as `GET /weather 0.01`"
            raise ValueError(f"{wanted} or `GET /chat upto 0.05`, not {as_given(text)}")
    is_upto, by_permit2 = way == "upto", way == "permit2"
    return Good(
        path=path, price=price, answer=answer, method=method, upto=is_upto, permit2=by_permit2
    )


def _using(answer: Answer, used: str) -> Answer:
    """Return `answer` with a fixed amount used; raises `ValueError`."""
    to_base(used, MOST_DECIMALS)

    async def metered(request: Request) -> Response:
        return _with_use(await answer(request), used)

    return metered


def _with_use(response: Response, used: Any) -> Response:
    response.headers[AMOUNT_USED] = str(used)
    return response


# --- Python ---------------------------------------------------------------------------------


def goods_of(sells: Sells) -> tuple[Good, ...]:
    """Return the goods of a mapping from "GET /weather 0.01" to what is sold.

    A value is a body (bytes, text, or anything else as JSON), a response of Starlette, or a
    function, async or not, that makes such a value of the request. In `upto` ("GET /chat upto
    0.05") a value may be (body, amount used in tokens), such as ("hello", "0.0012"). Raises
    `ValueError`.
    """
    if not isinstance(sells, Mapping):
        return tuple(sells)
    return tuple(_of_python(name, made) for name, made in sells.items())


def _of_python(name: str, made: Any) -> Good:
    is_function = callable(made) and not isinstance(made, Response)

    async def answer(request: Request) -> Response:
        value = made(request) if is_function else made
        value = await value if inspect.isawaitable(value) else value
        body, used = value if good.upto and isinstance(value, tuple) else (value, None)
        if isinstance(body, Response) and not hasattr(body, "body"):  # a file, a stream
            body = await _whole(body)
        return _response(body) if used is None else _with_use(_response(body), used)

    good = read_good(name, answer)
    if good.upto and isinstance(made, tuple):
        to_base(made[1], MOST_DECIMALS)
    return replace(good, works=is_function and not good.upto)


async def _whole(response: Response) -> Response:
    """Return a response that is read whole, like an API's, before anybody pays for it."""
    head, body = dict[str, Any](), bytearray()

    async def send(message: Message) -> None:
        head.update(message)
        body.extend(message.get("body", b""))
        if len(body) > MAX_ANSWER_BYTES:
            raise ValueError(f"an answer for sale has at most {MAX_ANSWER_BYTES} bytes")

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nobody leaves")

    scope = {"type": "http", "method": "GET", "headers": [], "asgi": {"spec_version": "2.4"}}
    await response(scope, receive, send)
    whole = Response(bytes(body), head["status"])
    headers = [pair for pair in head["headers"] if pair[0] != b"content-length"]
    whole.raw_headers = [*headers, (b"content-length", b"%d" % len(body))]
    return whole


def fixed(body: Any, media_type: str = "", status: int = 200) -> Answer:
    """Return a function that always answers with one body."""

    async def answer(_: Request) -> Response:
        return _response(body, media_type, status)

    return answer


def _response(value: Any, media_type: str = "", status: int = 200) -> Response:
    match value:
        case Response():
            # a receipt is added to its headers
            copied = Response(value.body, value.status_code)
            copied.raw_headers = [pair for pair in value.raw_headers if pair[0] != b"cache-control"]
            copied.headers["cache-control"] = "no-store"
            return copied
        case bytes() | str():
            usual = "application/octet-stream" if isinstance(value, bytes) else "text/plain"
            no_store = {"cache-control": "no-store"}
            return Response(value, status, no_store, media_type or usual)
        case _:
            return web.answer(value, status)


# --- flags ----------------------------------------------------------------------------------


def flagged(sells: Sequence[str], bodies: Sequence[Path]) -> Iterator[Good]:
    """Yield the goods of `--sell`, each with the file of its `--body`; raises `ValueError`.

    Without any `--body`, the answer names what was sold.
    """
    if bodies and len(bodies) != len(sells):
        raise ValueError(
            f"--body: {len(bodies)} files for {len(sells)} of --sell; give each --sell its --body, "
            "in the same order"
        )
    for number, text in enumerate(sells):
        try:
            named = re.split(r" upto | permit2 | \S+$", text, maxsplit=1)[0]
            good = read_good(text, fixed({"sold": named.strip()}))
        except ValueError as wrong:
            raise ValueError(f"--sell: {wrong}") from None
        yield replace(good, answer=_of_file(bodies[number])) if bodies else good


def _of_file(file: Path) -> Answer:
    try:
        body = file.read_bytes()
    except OSError as error:
        raise ValueError(f"--body {file}: {error.strerror}") from None
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if kind == JSON:
        try:
            json.loads(body)
        except ValueError as wrong:
            raise ValueError(f"--body {file}: it is no JSON: {wrong}") from None
    return fixed(body, kind)


# --- an API behind the service --------------------------------------------------------------


def behind(url: str, prices: Sequence[str]) -> Iterator[Good]:
    """Yield the goods of an API: each of `--price`, and all the rest for free.

    Raises `ValueError`.
    """
    api = Api(url)
    for text in prices:
        try:
            good = read_good(text, api.sold, every_method=True)
            yield replace(good, works=not good.upto)
        except ValueError as wrong:
            raise ValueError(f"--price: {wrong}") from None
    yield Good(path="/*", price=None, answer=api.free)


# --- an OpenAPI document --------------------------------------------------------------------


def of_openapi(file: Path) -> Iterator[Good]:
    """Yield the goods of an OpenAPI document, version 3, in JSON or YAML; raises `ValueError`.

    An operation with `x-price`, in tokens as text, is sold. An operation without a price is free,
    if it has an example. The body is the first example of the first answer 2xx: its own, its
    schema's, or made of the examples of the schema's properties.
    """
    try:
        document = _document(file)
        for path, operations in document["paths"].items():
            for method in ("get", "post", "put", "patch", "delete"):
                if method in operations:
                    yield from _operation(document, method, path, operations[method])
    except OSError as error:
        raise ValueError(f"--openapi {file}: {error.strerror}") from None
    except (KeyError, TypeError, AttributeError) as wrong:
        raise ValueError(f"--openapi {file}: it is no OpenAPI document: {wrong!r}") from None
    except (ValueError, RecursionError) as wrong:
        raise ValueError(f"--openapi {file}: {wrong}") from None


def _document(file: Path) -> Any:
    text = file.read_text(encoding="utf-8")
    if file.suffix not in (".yaml", ".yml"):
        return msgspec.json.decode(text)
    try:
        import yaml
    except ImportError:
        raise ValueError(f"YAML needs the extra `openapi`: {install('openapi')}") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as wrong:
        raise ValueError(f"it is no YAML: {wrong}") from None


def _operation(document: Any, method: str, path: str, operation: Any) -> Iterable[Good]:
    name, price = f"{method.upper()} {path}", operation.get("x-price")
    if price is not None and not isinstance(price, str):
        raise ValueError(f'{name}: x-price is a text such as "0.05", not {as_given(price)}')
    answers = {str(status): each for status, each in operation.get("responses", {}).items()}
    status = next((each for each in sorted(answers) if each[:1] == "2"), "")
    code = int(status) if status.isdecimal() else 200
    try:
        answer = _resolved(document, answers.get(status, {}))
        kind, content = next(iter(answer.get("content", {}).items()), ("", {}))
        body = _example(document, content) if kind else b""
    except LookupError as missing:
        if price is None:
            return ()
        raise ValueError(
            f"{name}: the answer {status or '2xx'} has no example at {missing.args[0]}; give an "
            "example, because the service sells this body"
        ) from None
    body = body if isinstance(body, str | bytes) and "json" not in kind else encode(body)
    made = fixed(body if kind else b"", kind, code)
    about = operation.get("summary") or operation.get("description") or ""
    return (
        Good(path=path, price=price, answer=made, method=method.upper(), description=str(about)),
    )


def _resolved(document: Any, part: Any, at: str = "$") -> Any:
    """Return a part of the document, or the target of its `$ref`. Raises `LookupError` with the
    place of a `$ref` that leads back to itself.
    """
    seen = set[str]()
    while isinstance(part, dict) and isinstance(ref := part.get("$ref"), str):
        if ref in seen:
            raise LookupError(at)
        seen.add(ref)
        if not ref.startswith("#/"):
            raise ValueError(f"{as_given(ref)}: only parts of the same document are read")
        part = document
        try:
            for step in ref[2:].split("/"):
                part = part[step.replace("~1", "/").replace("~0", "~")]
        except (LookupError, TypeError):
            raise ValueError(f"{as_given(ref)} leads to nothing in the document") from None
    return part


def _example(
    document: Any, content: Any, at: str = "$", around: frozenset[int] = frozenset()
) -> Any:
    """Return the example of a content or a schema; raises `LookupError` with the place of none.

    A schema inside itself has none: `around` has the identities of the schemas around this one.
    """
    content = _resolved(document, content, at)
    for key in ("example", "default", "const"):
        if key in content:
            return content[key]
    if id(content) in around:
        raise LookupError(at)
    made = partial(_example, document, around=around | {id(content)})
    match content:
        case {"examples": dict() as named} if named:
            return _resolved(document, next(iter(named.values())), at)["value"]
        case {"examples": [first, *_]} | {"enum": [first, *_]}:
            return first
        case {"schema": schema}:
            return made(schema, at)
        case {"properties": dict() as properties}:
            return {name: made(schema, f"{at}.{name}") for name, schema in properties.items()}
        case {"items": schema}:
            return [made(schema, f"{at}[0]")]
        case {"allOf": [*schemas]}:
            parts = [made(schema, at) for schema in schemas]
            return {name: value for part in parts for name, value in part.items()}
        case {"anyOf": [schema, *_]} | {"oneOf": [schema, *_]}:
            return made(schema, at)
        case _:
            raise LookupError(at)


# --- all of them ----------------------------------------------------------------------------


def selling(settings: Settings, goods: Iterable[Good]) -> Settings:
    """Return the settings of a service that sells these goods.

    If an answer costs work, payments are verified first, unless the payment flow says otherwise.
    """
    sells = tuple(goods)
    flow = settings.payment_flow
    if flow is None and any(good.works for good in sells):
        flow = "authorization"
    return replace(settings, sells=sells, payment_flow=flow)
