"""Bodies that are no requests: no 5xx, no success, and the next good payment settles."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from x402sim.suite import texts
from x402sim.suite.facilitator.case import NEXT, Demand, case, demand, no_server_error, only
from x402sim.suite.facilitator.payment import STANDARD, Answer, Draft
from x402sim.suite.facilitator.play import Play
from x402sim.suite.verdict import Violation

DEEP = 100_000
_case = partial(case, asks_only=True)
Made = Callable[[Draft], bytes]


@dataclass(frozen=True, slots=True)
class Sent:
    """A body, and the answers of verify and settle."""

    about: str
    answers: tuple[Answer, Answer]


def _without(draft: Draft, part: str) -> bytes:
    return json.dumps({k: v for k, v in json.loads(draft.content).items() if k != part}).encode()


def _payment(draft: Draft) -> str:
    return draft.path("signature")[0]


_NO_JSON: dict[str, Made] = {
    "nothing": lambda _: b"",
    "words": lambda _: b"hello",
    "a form": lambda _: b"paymentPayload=1&paymentRequirements=2",
    "half of it": lambda draft: draft.content[: len(draft.content) // 2],
    "one bracket less": lambda draft: draft.content[:-1],
    "more behind it": lambda draft: draft.content + b"}",
    "twice": lambda draft: draft.content + draft.content,
    "quotes of another kind": lambda draft: draft.content.replace(b'"', b"'"),
    "a comma too many": lambda draft: draft.content[:-1] + b",}",
    "bytes that are no UTF-8": lambda draft: draft.content.replace(b"exact", b"\xff\xfe\xfd"),
    "a NUL": lambda _: b"\0",
}
LENIENT = ("more behind it", "twice", "quotes of another kind", "a comma too many")
"""Bodies with a whole payment for a lenient reader: a parser may accept other forms, too
(RFC 8259, 9).
"""
_NO_OBJECT: dict[str, Made] = {
    "null": lambda _: b"null",
    "true": lambda _: b"true",
    "a number": lambda _: b"402",
    "a text": lambda _: b'"payment"',
    "a list": lambda _: b"[]",
    "a list of it": lambda draft: b"[" + draft.content + b"]",
    "an empty object": lambda _: b"{}",
    "an object of others": lambda _: b'{"__proto__": {"isValid": true}, "constructor": 1}',
}
_VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "a number": 7,
    "a text": "text",
    "a list": [],
    "a list of lists": [[], [[]]],
    "an empty object": {},
}


def _part(draft: Draft, which: str, value: Any) -> bytes:
    part = _payment(draft) if which == "payment" else "paymentRequirements"
    return json.dumps({**json.loads(draft.content), part: value}).encode()


_PARTS: dict[str, Made] = {
    f"the {which} is {word}": partial(_part, which=which, value=value)
    for which in ("payment", "requirements")
    for word, value in _VALUES.items()
} | {
    "no payment": lambda draft: _without(draft, _payment(draft)),
    "no requirements": lambda draft: _without(draft, "paymentRequirements"),
}


def _inner(draft: Draft, name: str, value: Any) -> bytes:
    return draft.with_value(name, value).content


_INNER: dict[str, Made] = {
    f"{name.rpartition('.')[2]} is {word}": partial(_inner, name=name, value=value)
    for name in ("payment.payload", "payload.authorization", "requirements.extra")
    for word, value in _VALUES.items()
    if not (name == "requirements.extra" and word in ("null", "an empty object"))
}
"""A facilitator that knows the token need not read `extra`: a payment with another `extra` may be
good."""
_ODD: dict[str, Made] = {
    "a lone surrogate": lambda draft: draft.content.replace(b'"exact"', b'"\\ud800"'),
    "a NUL in a text": lambda draft: draft.content.replace(b'"exact"', b'"ex\\u0000act"'),
    "a text of 100 kB": lambda draft: (
        draft.with_value("requirements.network", "x" * 100_000).content
    ),
    "a number of 5000 digits": lambda draft: draft.content.replace(
        b'"paymentRequirements"', b'"n": ' + b"9" * 5000 + b', "paymentRequirements"'
    ),
    "NaN": lambda draft: draft.content.replace(
        b'"paymentRequirements"', b'"n": NaN, "paymentRequirements"'
    ),
    "1000 fields": lambda draft: (
        draft.with_value("requirements.extra", {f"f{n}": n for n in range(1000)}).content
    ),
    "the scheme in another alphabet": lambda draft: draft.demanding("scheme", "\u0435xact").content,
    "a huge number alone": lambda _: b"1" * 5000,
    "an infinite number": lambda _: b"1e999",
}


async def _sent(
    play: Play, about: str, body: bytes, headers: Mapping[str, str] | None = None
) -> Sent:
    """Send a body to verify, and then to settle."""
    verified = await play.post(play.dialect.verify_path, body, headers)
    return Sent(about, (verified, await play.post(play.dialect.settle_path, body, headers)))


def _posts(bodies: Mapping[str, Made]) -> Callable[[Play], Any]:
    async def play(it: Play) -> list[Sent]:
        payer, found = await it.room.payer(), []
        for about, made in bodies.items():
            it.say(f"{about}:")
            body = made(await it.draft(payer))
            found.append(await _sent(it, about, body))
            if any(not each.status for each in found[-1].answers):
                break
        return found

    return play


def _no_error(_: Play, observed: Sequence[Sent]) -> Violation | None:
    for each in observed:
        for name, answer in zip(("verify", "settle"), each.answers, strict=True):
            if fault := no_server_error(answer, f"{each.about}: {name}"):
                return fault
    return None


def _no_success(_: Play, observed: Sequence[Sent]) -> Violation | None:
    for each in observed:
        verified, settled = each.answers
        if each.about in LENIENT or each.about.startswith("extra is"):
            continue
        if verified.is_valid or settled.succeeded:
            good = verified if verified.is_valid else settled
            return Violation(demand="no-request-no-verdict", actual=f"{each.about}: {good.how}")
    return None


def _answers_or_closes(play: Play, observed: Sequence[Sent]) -> Violation | None:
    for each in observed:
        for answer in each.answers:
            if answer.is_server_error or answer.is_late:
                return no_server_error(answer, each.about)
    return None


def _breaks_parsers(
    what: str, test: Callable[[Play, Any], Violation | None] = _no_error
) -> list[Demand]:
    """Return a demand that no text states; a good payment afterwards is a MUST."""
    return [
        demand(
            f"{what}: no 5xx",
            texts.ours(
                texts.SERVER_ERROR,
                because="who is told of a server's error asks again; but many frameworks answer so "
                "where their parser ends",
            ),
        )(test)
    ]


def _demands(what: str) -> list[Demand]:
    return [
        demand(
            f"{what}: no 5xx",
            texts.derived(
                texts.INVALID_REQUEST,
                texts.SERVER_ERROR,
                so="the text keeps the two apart: who asks wrongly is told so, and who is told of "
                "a server's error asks again (x402-foundation/x402#3015)",
            ),
        )(_no_error),
        demand(
            f"{what}: neither valid nor settled",
            texts.explicit(texts.INVALID_PAYLOAD, texts.INVALID_REQUIREMENTS),
            suffix="refused",
        )(_no_success),
    ]


@_case(
    "body/deep",
    *_breaks_parsers("JSON of 100,000 levels"),
    after=replace(
        NEXT,
        ground=texts.ours(
            texts.EXECUTES,
            because="anybody can end a process whose parser recurses; but that is its "
            "language's parser, and no text speaks of such bodies",
        ),
    ),
)
async def _deep(play: Play) -> list[Sent]:
    found = []
    bodies = {
        "lists": b"[" * DEEP + b"]" * DEEP,
        "objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        "brackets that are not closed": b"[" * DEEP,
        "in the requirements": (await play.draft()).content.replace(
            b'"paymentRequirements": {',
            b'"paymentRequirements": {"a": ' + b"[" * DEEP + b"]" * DEEP + b",",
            1,
        ),
    }
    for about, body in bodies.items():
        play.say(f"{about}:")
        found.append(await _sent(play, about, body))
        if play.room.has_ended:
            break
    return found


@_case("body/large", *_breaks_parsers("A body of 4 MB", _answers_or_closes))
async def _large(play: Play) -> list[Sent]:
    body = (await play.draft()).with_value("requirements.description", "x" * (4 << 20)).content
    return [await _sent(play, "a body of 4 MB", body)]


@_case("body/type", *_breaks_parsers("A body of another type"))
async def _types(play: Play) -> list[Sent]:
    found = []
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        body = b"a=b&c=%zz" if "form" in kind else b"payment"
        headers = {"Content-Type": kind} if kind else {}
        found.append(await _sent(play, f"Content-Type {kind or 'missing'}", body, headers))
    return found


ROWS = [
    _case("body/no-json", *_demands("A body without valid JSON"))(_posts(_NO_JSON)),
    _case("body/no-object", *_demands("JSON other than a request"))(_posts(_NO_OBJECT)),
    _case("body/parts", *_demands("A request with malformed parts"))(_posts(_PARTS)),
    _case(
        "body/inner",
        *_demands("A payment with malformed parts"),
        absent=only(STANDARD, "the dialect of Cronos has them in its header"),
    )(_posts(_INNER)),
    _case("body/odd", *_breaks_parsers("Texts and numbers known to break parsers"))(_posts(_ODD)),
]
