"""The lists of a facilitator: kinds, signers and resources."""

import re
from collections.abc import Sequence

from x402sim.protocol import x402
from x402sim.protocol.crypto import Address, Hash, checksum, from_hex, to_hex
from x402sim.protocol.permit2_payments import UPTO
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.case import case, demand, no_server_error, only
from x402sim.suite.facilitator.payment import SHOWN, Answer, drafted
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import BALANCE_BASE
from x402sim.suite.verdict import Inconclusive, Violation

_LIST = "/discovery/resources"
MOST_KINDS = 30
"""The most kinds of a list that are tried."""


async def _supported(play: Play) -> Answer:
    return await play.get(play.dialect.supported_path)


def _kinds(answer: Answer) -> list[dict[str, object]]:
    kinds = answer.fields.get("kinds")
    return [each for each in kinds if isinstance(each, dict)] if isinstance(kinds, list) else []


@demand(
    "GET /supported lists every kind of settled payment",
    texts.explicit(texts.SUPPORTED, texts.SUPPORTED_V1),
)
def _lists_it(play: Play, observed: Answer) -> Violation | None:
    version = play.dialect.version
    wanted = {
        "x402Version": version,
        "scheme": play.dialect.scheme,
        "network": x402.network_name(version, play.room.network),
    }
    if any(wanted.items() <= each.items() for each in _kinds(observed)):
        return None
    return Violation(demand="lists-what-it-settles", actual=f"no {wanted} in {observed.how}")


@demand("/supported has kinds, extensions and signers", texts.explicit(texts.SUPPORTED_FIELDS))
def _has_fields(_: Play, observed: Answer) -> Violation | None:
    wanted = {"kinds": list, "extensions": list, "signers": dict}
    lacks = [
        name for name, kind in wanted.items() if not isinstance(observed.fields.get(name), kind)
    ]
    if not lacks:
        return None
    return Violation(
        expected="kinds, extensions and signers",
        actual=f"without {', '.join(lacks)}: {observed.how}",
    )


@demand(
    "GET /supported names the sender of transactions as a signer", texts.explicit(texts.SIGNERS)
)
def _names_its_signer(play: Play, observed: tuple[Answer, Address]) -> Violation | None:
    listed, sender = observed
    signers = listed.fields.get("signers")
    named = signers.items() if isinstance(signers, dict) else ()
    mine = [
        str(address).lower()
        for pattern, addresses in named
        if str(pattern) in ("eip155:*", play.room.network.caip2) and isinstance(addresses, list)
        for address in addresses
    ]
    if to_hex(sender) in mine:
        return None
    return Violation(
        demand="lists-its-signers",
        actual=f"{checksum(sender)} sends; {listed.how}",
    )


_NOT_SUPPORTED = re.compile(
    r"(invalid|unsupported)_(scheme|network|x402_version)"
    r"|(unsupported|unknown) (scheme|network|version)"
    r"|(scheme|network|version)\b.{0,60} not (supported|registered)"
    r"|no (facilitator|scheme)\b.{0,60} registered",
    re.IGNORECASE,
)
"""Refusals of an unsupported kind: words of section 9, and of libraries."""


@demand("The facilitator takes every kind of the list", texts.explicit(texts.SUPPORTED))
def _takes_what_it_lists(_: Play, observed: Sequence[tuple[str, bool, Answer]]) -> Violation | None:
    for about, is_good, answer in observed:
        denied = _NOT_SUPPORTED.search(answer.reason or answer.text[:SHOWN])
        if (is_good and not answer.is_valid) or (denied and not answer.is_valid):
            return Violation(demand="listed-is-taken", actual=f"{about}: verify: {answer.how}")
    return None


@demand("A list of resources comes in pages", texts.explicit(texts.DISCOVERY, texts.PAGES))
def _is_listed(_: Play, observed: Sequence[tuple[str, Answer]]) -> Violation | str | None:
    first = observed[0][1]
    if first.status // 100 != 2 or "items" not in first.fields:
        return f"it has no /discovery/resources: {first.status}"
    for query, answer in observed[:4]:
        page = answer.fields.get("pagination")
        items = answer.fields.get("items")
        if answer.status != 200 or not isinstance(items, list) or not isinstance(page, dict):
            return Violation(
                expected="200 with x402Version, items and pagination",
                actual=f"{query or 'without a query'}: {answer.how}",
            )
        if "limit=1" in query and "100" not in query and len(items) > 1:
            return Violation(expected="one item, as limit=1 says", actual=f"{query}: {answer.how}")
    return None


@demand(
    "An odd query of the list is no 5xx",
    texts.ours(texts.PAGES, because="anybody can ask, and an error looks like an outage"),
    suffix="odd",
)
def _odd_is_no_error(_: Play, observed: Sequence[tuple[str, Answer]]) -> Violation | None:
    for query, answer in observed:
        if fault := no_server_error(answer, query):
            return fault
    return None


@case(
    "supported/kinds",
    _takes_what_it_lists,
    absent=only([Dialect.V2], "the list is the same in both versions: each kind is tried"),
)
async def _tried_kinds(play: Play) -> list[tuple[str, bool, Answer]]:
    """Verify a payment of each listed kind: kind, whether the payment is good, answer."""
    found, ours = [], play.room.network
    for kind in _kinds(await _supported(play))[:MOST_KINDS]:
        named, scheme = str(kind.get("network")), str(kind.get("scheme"))
        version = kind.get("x402Version")
        dialect = Dialect.V1 if version == 1 else Dialect.V2
        payer, times, account = await play.room.payer(), (play.now_s, play.wall_s), None
        if (version, scheme) == (2, UPTO):
            dialect, account = Dialect.UPTO, await play.facilitator()
            await play.room.allow(payer.address_bytes, BALANCE_BASE)
        draft = drafted(dialect, ours, payer, play.payee(), times, play.draw(), facilitator=account)
        draft = draft.demanding("network", named).demanding("scheme", scheme)
        for part in ("body", "payment"):
            draft = draft.with_value(f"{part}.x402Version", version)
        is_good = (scheme, named) == (dialect.scheme, x402.network_name(dialect.version, ours))
        about = f"{scheme} on {named}, version {version}"
        play.say(f"{about}:")
        found.append((about, is_good, await play.verify(draft)))
    return found


@case(
    "supported/signers", _names_its_signer, absent=only([Dialect.V2], "only version 2 has signers")
)
async def _signers(play: Play) -> tuple[Answer, Address]:
    listed = await _supported(play)
    settled = await play.settle(await play.draft())
    for each in (await play.money()).sent:
        sent = await play.room.chain.transaction(Hash(from_hex(each.tx_hash, 32)))
        if sent is not None:
            return listed, sent.call.sender
    raise Inconclusive(f"a good payment sent nothing: {settled.how}")


@case(
    "supported/discovery",
    _is_listed,
    _odd_is_no_error,
    asks_only=True,
    absent=only([Dialect.V2], "both versions have the same list"),
)
async def _listed(play: Play) -> list[tuple[str, Answer]]:
    asked = ("", "?limit=1", "?limit=100&offset=0", "?type=http")
    odd = (
        "?offset=1000000",
        "?limit=0",
        "?limit=-1",
        "?limit=101",
        "?limit=abc",
        "?offset=-1",
        "?limit=1e999",
    )
    return [(query, await play.get(_LIST + query)) for query in (*asked, *odd)]


ROWS = [
    case("supported/lists", _lists_it, asks_only=True)(_supported),
    case(
        "supported/fields",
        _has_fields,
        asks_only=True,
        absent=only([Dialect.V2], "only version 2 has extensions and signers"),
    )(_supported),
]
