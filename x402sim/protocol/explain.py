"""Explains a message of a payment: the parts, the fields, and the faults of each part.

`recognize.TABLE` tells the kind of a message and the check; here are the parts. Fields are texts,
or values of `protocol.values`, in the order of the message.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from msgspec import convert, structs, to_builtins

from x402sim.protocol.crypto import Address, BadSignature, checksum, parse_address, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.envelopes import Envelope, differences
from x402sim.protocol.findings import (
    Finding,
    listed_in,
    of_declaration,
    of_error_in,
    of_error_word,
    of_other_payment,
    of_other_shape,
    of_permit2,
    of_signature,
    of_sponsored,
    of_terms,
    of_used,
    of_wallet,
    of_way,
    of_window,
    signer_of,
)
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import (
    NAMES,
    Permit2Authorization,
    permit2_digest,
    signer_of as permit2_signer,
)
from x402sim.protocol.permit2_payments import SPONSORED_PERMIT, UPTO, permit_of, sponsored_permit_in
from x402sim.protocol.recognize import MessageType, Recognized, recognize, recognized
from x402sim.protocol.values import Fact, amount_in, amount_of, meant, point, shortened
from x402sim.protocol.ways import Dialect, Way, dialect_of, network_called, ways_of
from x402sim.protocol.x402 import PAYMENT_HEADERS, REQUIRED_HEADER, RESPONSE_HEADERS, RequirementsV2

_PARTS = ("paymentRequirements", "accepts", "items", "resources", "paymentPayload")
"""Fields shown as separate parts."""


def network_of(
    found: Recognized, signed: SignedPayment, known: Mapping[str, Network]
) -> Network | None:
    """Return the network of a signed payment: in version 2, as the payment says."""
    network = network_called(signed.network, known)
    if found.dialect is Dialect.V2:
        return Way(Dialect.V2, found.fields["accepted"]).own_network() or network
    if network is not None and signed.asset:
        return replace(network, asset=parse_address(signed.asset))
    return network


def facts_of(
    found: Recognized, known: Mapping[str, Network], now_s: int
) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a message, for a payment with meanings."""
    if (signed := found.signed) is None:
        for name, value in found.fields.items():
            if name not in _PARTS or not isinstance(value, dict | list):
                yield name, _value(name, value, now_s)
        return
    auth, named = signed.authorization, network_called(signed.network, known)
    yield "scheme", signed.scheme
    yield "network", _network_in_words(signed.network, named)
    if signed.asset:
        yield "asset", _asset_in_words(signed.asset, named)
    if isinstance(about := found.fields.get("resource"), dict):
        yield "resource", str(about.get("url"))
    yield "from", checksum(auth.from_)
    yield "to", checksum(auth.to)
    if signed.permit2 is not None:
        yield from _permit2_facts(signed.permit2, signed.signature, named, now_s)
        return
    is_named = named is not None and signed.asset.lower() in ("", to_hex(named.asset))
    yield "value", amount_in(str(auth.value), named if is_named else None)
    yield "validAfter", point(auth.valid_after, now_s)
    yield "validBefore", point(auth.valid_before, now_s)
    yield "nonce", to_hex(auth.nonce)
    yield "signature", _value("signature", to_hex(signed.signature), now_s)
    if (network := network_of(found, signed, known)) is None:
        yield "signed by", meant(None, "unknown: the token's domain is not known")
    elif by := of_wallet(signed.signature):
        yield "signed by", meant(None, f"not known here: {by}")
    elif (signer := signer_of(auth, signed.signature, network.domain)) is None:
        yield "signed by", meant(None, "nobody: it is no signature")
    else:
        yield "signed by", _by(signer, auth)


def _by(signer: Address, auth: Authorization | Permit2Authorization) -> Fact:
    return meant(checksum(signer), "`from`" if signer == auth.from_ else "not `from`", ", ")


def _permit2_facts(
    auth: Permit2Authorization, signature: bytes, network: Network | None, now_s: int
) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a message of Permit2 behind the payer and the payee."""
    own = network if network is not None and auth.token == network.asset else None
    yield "value" if auth.facilitator is None else "maximum", amount_in(str(auth.amount), own)
    yield "token", _asset_in_words(checksum(auth.token), network)
    yield "spender", meant(checksum(auth.spender), NAMES.get(auth.spender, "no x402 proxy"))
    if auth.facilitator is not None:
        yield "facilitator", meant(checksum(auth.facilitator), "alone may settle", ", ")
    yield "validAfter", point(auth.valid_after, now_s)
    yield "deadline", point(auth.deadline, now_s)
    yield "nonce", str(auth.nonce)
    yield "signature", _value("signature", to_hex(signature), now_s)
    if network is None:
        yield "signed by", meant(None, "unknown: the chain is not known")
        return
    try:
        signer = permit2_signer(permit2_digest(auth, network.chain_id), signature)
    except BadSignature as wrong:
        yield "signed by", meant(None, f"nobody that an account's signature shows: {wrong}")
        return
    yield "signed by", _by(signer, auth)


def _value(name: str, value: Any, now_s: int) -> Any:
    """Return a field's value: a signature shortened, a time with the date."""
    if name in ("timestamp", "expiresAt") and type(value) is int:
        return point(value, now_s, is_ms=True)
    if name in ("signature", "paymentHeader") and isinstance(value, str) and len(value) > 60:
        return shortened(value)
    return value


def way_facts(way: Way, known: Mapping[str, Network]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a way to pay with meanings."""
    network = way.network(known)
    for name, value in way.fields.items():
        if name == "network":
            yield name, _network_in_words(str(value), network)
        elif name == "asset":
            yield name, _asset_in_words(str(value), network)
        elif name == way.amount_name:
            yield name, amount_of(way, known)
        elif name == "maxTimeoutSeconds":
            yield name, Fact(f"{value} s", value)
        elif name == "extra" and isinstance(value, dict):
            yield from ((f"extra.{key}", each) for key, each in value.items())
        else:
            yield name, value


def _network_in_words(name: str, network: Network | None) -> Fact:
    if network is None:
        return meant(name, "unknown", ", ")
    return meant(name, network.caip2 if name == network.name else network.name)


def _asset_in_words(asset: str, network: Network | None) -> Fact:
    is_known = network is not None and asset.lower() == "0x" + network.asset.hex()
    return meant(asset, network.token_symbol if network and is_known else "")


_HEADERS = {
    each.lower()
    for each in (*PAYMENT_HEADERS.values(), *RESPONSE_HEADERS.values(), REQUIRED_HEADER)
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """A message, or a part of a message: the title, the fields, and the faults.

    Fields are texts, or values of `protocol.values`.
    """

    title: str
    facts: Mapping[str, Any]
    findings: tuple[Finding, ...]


def explain(
    found: Recognized, known: Mapping[str, Network], now_s: int, place: str = ""
) -> Iterator[Decoded]:
    """Yield the parts of a message: the message itself, then ways to pay and messages inside."""
    if found.envelope is not None:
        first, *others = _of_envelope(found.envelope, found.encoding, known, now_s)
        odd = list(found.odd)
        odd += [] if found.envelope.enclosed else of_error_in(found.fields)
        yield replace(first, findings=(*odd, *first.findings))
        yield from others
        return
    if found.foreign is not None:
        other = found.foreign
        wanted = "an offer of the x402 standard, or of two steps"
        finding = Finding("402", other.name, wanted, other.do)
        title = f"402 Payment Required: {other.name}"
        if not other.is_required:
            wanted = "x402, or our two steps: no other protocol is looked at"
            do = "Read it with a client of its protocol."
            finding = Finding("protocol", other.name, wanted, do, stops=False, skipped=True)
            title = f"{other.name[:1].upper()}{other.name[1:]}"
        yield Decoded(title, other.facts, (finding,))
        return
    kind = found.kind
    ways = list(ways_of(found.fields))
    if kind is not MessageType.REQUIREMENTS:
        title = f"{kind.value[:1].upper()}{kind.value[1:]} in {found.of}, {found.encoding}{place}"
        facts = {"header": found.header} if found.header and not place else {}
        facts |= dict(facts_of(found, known, now_s))
        yield Decoded(title, facts, tuple(_of_message(found, known, now_s)))
        yield from _of_sponsored(found, known, now_s)
    if kind is MessageType.REQUEST and found.dialect is None:
        yield from _of_request(found, known, now_s)
        return
    if kind is MessageType.LISTING:
        yield from _of_items(found.fields, known)
        return
    for number, way in enumerate(ways, 1):
        part = _of_way(way, known)
        if len(ways) > 1:
            told = (
                replace(each, about=f"{each.about} of offer {number}", offers=(number,))
                for each in part.findings
            )
            part = replace(part, findings=tuple(told))
        yield part
    if kind in (MessageType.SETTLEMENT, MessageType.REQUEST) and not found.shape:
        yield from _inner(found, ways[0], known, now_s)


def _of_way(way: Way, known: Mapping[str, Network]) -> Decoded:
    title = f"Payment requirements: {way.dialect.value}"
    return Decoded(title, dict(way_facts(way, known)), tuple(of_way(way, known)))


def _of_message(found: Recognized, known: Mapping[str, Network], now_s: int) -> Iterator[Finding]:
    other = None
    if found.kind is MessageType.PAYMENT and found.dialect is not Dialect.TWO_STEPS:
        assert found.dialect is not None
        version = found.fields.get("x402Version")
        other = of_other_shape(found.fields, version)
        other = other or of_other_payment(found.fields, found.dialect)
    findings = list(_of_header(found))
    yield from found.odd
    yield from findings
    if other is not None:
        yield other
        return
    is_reported = findings and found.kind in (MessageType.SETTLEMENT, MessageType.REQUEST)
    if found.shape and not is_reported:
        offers = ways_of(found.fields) if found.kind is MessageType.REQUIRED else ()
        if any(each.stops for way in offers for each in of_way(way, known)):
            return  # what is wrong is reported of the offer that is wrong
        do = "Compare it with the message that the other party's documentation shows."
        yield Finding("shape", found.shape, f"a {found.kind.value} that can be read", do)
    if found.kind is MessageType.REQUIRED:
        if found.fields.get("accepts") == []:
            yield Finding("accepts", "an empty list", "a way to pay", "List at least one.")
        yield from of_error_word(found.fields)
    if found.dialect in (Dialect.V1, Dialect.V2):
        yield from of_declaration(found.fields, found.dialect.version)
    if found.signed is not None:
        yield from _of_payment(found, found.signed, known, now_s)
    if found.row.check is not None:
        yield from found.row.check(found.fields, known)


def _of_header(found: Recognized) -> Iterator[Finding]:
    wanted, do = "base64 of the JSON", "Encode the JSON: as it is, it is no header's value."
    if "paymentHeader" in found.fields:
        inner = found.fields["paymentHeader"]
        if isinstance(inner, dict) or str(inner).lstrip().startswith("{"):
            yield Finding("paymentHeader", "JSON", f"{wanted}, or 0x-hex", do)
    is_named = found.name.lower() in _HEADERS or found.kind is MessageType.PAYMENT
    if not found.name or not is_named:
        return
    place = found.header or "the body, as it is"
    if found.name.lower() != place.lower():
        do_this = f"Send it there: it is a {found.kind.value} in {found.of}."
        stops = found.kind is not MessageType.RECEIPT  # a payer may look into both headers
        yield Finding("header", found.name, place, do_this, stops)
    if found.encoding == "JSON":
        yield Finding("encoding", "JSON", wanted, do)


# --- messages in messages ----------------------------------------------------------------


def _inner(
    found: Recognized, way: Way, known: Mapping[str, Network], now_s: int
) -> Iterator[Decoded]:
    """Yield the payment header in the body of a settlement, compared with its requirements."""
    try:
        inner = recognize(found.fields["paymentHeader"])
        terms = of_terms(inner.signed.authorization, way) if inner.signed else ()
    except BadMessage as wrong:
        do = "Send the header as the wallet made it."
        finding = Finding("paymentHeader", str(wrong), "a payment header", do)
        yield Decoded("Payment header", {}, (finding,))
        return
    for each in explain(inner, known, now_s):
        yield Decoded(each.title, each.facts, (*each.findings, *terms))


def _of_request(found: Recognized, known: Mapping[str, Network], now_s: int) -> Iterator[Decoded]:
    """Yield the payment and the requirements in a body of verify and settle, compared."""
    sent, wanted = found.fields.get("paymentPayload"), found.fields.get("paymentRequirements")
    try:
        inner = _read(sent)
    except BadMessage as wrong:
        do = "Send the payment as the client sent it, decoded."
        finding = Finding("paymentPayload", str(wrong)[:300], "a payment", do)
        yield Decoded("Payment", {}, (finding,))
        inner = None
    way = None
    if isinstance(wanted, dict):
        dialect = inner.dialect if inner and inner.dialect else dialect_of(wanted)
        way = Way(dialect, wanted, wanted.get("resource"))
    if inner is not None:
        asset = way.fields.get("asset") if way is not None else None
        if inner.signed is not None and inner.dialect is Dialect.V1 and isinstance(asset, str):
            with suppress(ValueError):  # version 1 does not name its token: the requirements do
                parse_address(asset)
                inner = replace(inner, signed=structs.replace(inner.signed, asset=asset))
        terms = list(_of_pair(found.fields, inner, way))
        for number, each in enumerate(explain(inner, known, now_s, ", in paymentPayload")):
            own = terms if number == 0 else ()
            yield Decoded(each.title, each.facts, (*each.findings, *own))
    if way is not None:
        yield _of_way(way, known)


def _of_pair(fields: Mapping[str, Any], inner: Recognized, way: Way | None) -> Iterator[Finding]:
    if inner.kind is not MessageType.PAYMENT:
        do = "Send the payment that the client sent, decoded."
        yield Finding("paymentPayload", f"a {inner.kind.value}", "a payment", do)
        return
    if isinstance(fields.get("paymentPayload"), str):
        do = "Decode it: facilitators of the standard read an object."
        yield Finding("paymentPayload", f"a text, {inner.encoding}", "the object in it", do)
    version, own = fields.get("x402Version"), inner.fields.get("x402Version")
    if version is not None and version != own:
        do = "Write the version of the payment beside it."
        yield Finding("x402Version", repr(version)[:80], f"{own!r}, as in the payment"[:80], do)
    if way is None:
        return
    is_upto = inner.signed is not None and inner.signed.scheme == UPTO
    if inner.signed is not None:
        yield from (of_used if is_upto else of_terms)(inner.signed.authorization, way)
    accepted = inner.fields.get("accepted")
    do = "Send the requirements of the 402 that was paid."
    if isinstance(accepted, dict):
        paths = list(differences(accepted, dict(way.fields)))
        paths = [path for path in paths if not (is_upto and path == way.amount_name)]
        if paths:
            got = f"it differs from paymentRequirements in {', '.join(paths[:6])}"
            yield Finding("accepted", got, "the same requirements", do)
        return
    for name in ("scheme", "network"):
        if inner.fields.get(name) != way.fields.get(name):
            wanted = f"{way.fields.get(name)!r}, as paymentRequirements say"
            yield Finding(name, repr(inner.fields.get(name))[:80], wanted[:120], do)


def _of_envelope(
    envelope: Envelope, encoding: str, known: Mapping[str, Network], now_s: int
) -> Iterator[Decoded]:
    """Yield a message of another protocol, and each message in it once."""
    title = f"Message of {envelope.protocol}, {encoding}"
    if not envelope.enclosed:
        title += ": no payment is in it"
        got = ": ".join(envelope.facts.values())[:300] or "neither a 402, a payment nor a receipt"
        do = "Look at the error: either no payment is the cause, or the field data does not say so."
        is_402 = envelope.facts.get("code") == "402"  # it means to ask for a payment
        finding = Finding("message", got, "a 402, a payment or a receipt", do, stops=is_402)
        yield Decoded(title, envelope.facts, (finding,))
        return
    places = {each.where: each for each in envelope.enclosed}
    yield Decoded(title, {"holds": ", ".join(places)}, envelope.findings)
    done: list[Any] = []
    for where, each in places.items():
        if each.fields in done:
            continue
        done.append(each.fields)
        is_text = isinstance(each.fields, str)
        try:
            inner = _read(each.fields)
        except BadMessage as wrong:
            do = "Put the object there, as the standard shows it."
            finding = Finding(where, str(wrong)[:300], "a message of the x402 standard", do)
            yield Decoded(where, {}, (finding,))
            continue
        for number, part in enumerate(explain(inner, known, now_s, f", in {where}")):
            own: tuple[Finding, ...] = ()
            if is_text and number == 0:
                do = f"Put the object there: only headers of HTTP are {inner.encoding}."
                own = (Finding(where, f"a text, {inner.encoding}", "an object", do),)
            yield Decoded(part.title, part.facts, (*part.findings, *own))


def _read(fields: Any) -> Recognized:
    """Return the message in an object or a text; raises `BadMessage`."""
    if isinstance(fields, dict):
        return recognized(fields)
    if isinstance(fields, str):
        return recognize(fields)
    raise BadMessage(json.dumps(fields)[:200])


def _of_items(fields: Mapping[str, Any], known: Mapping[str, Network]) -> Iterator[Decoded]:
    for item in listed_in(fields) or ():
        listed = item.get("accepts") if isinstance(item, dict) else None
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict):
                part = _of_way(Way(dialect_of(each), each, item.get("resource")), known)
                yield replace(part, facts={"of": str(item.get("resource")), **part.facts})


# --- a payment ---------------------------------------------------------------------------


def _of_sponsored(found: Recognized, known: Mapping[str, Network], now_s: int) -> Iterator[Decoded]:
    if (signed := found.signed) is None or signed.permit2 is None:
        return
    network, offered = network_of(found, signed, known), found.fields["accepted"]
    title, facts = f"EIP-2612 permit in extensions.{SPONSORED_PERMIT}", dict[str, Any]()
    try:
        if (info := sponsored_permit_in(found.fields.get("extensions"))) is None:
            return
        for name, value in to_builtins(info).items():
            facts[name] = _value(name, value, now_s)
        permit, _ = permit_of(info)
        facts["spender"] = meant(info.spender, NAMES.get(permit.spender, "not Permit2"))
        named = network_called(signed.network, known) or network
        facts["amount"] = amount_in(info.amount, named)
        facts["deadline"] = point(permit.deadline, now_s)
        wrong: tuple[Finding, ...] = ()
        if network is not None:
            required = convert(offered, RequirementsV2)
            wrong = tuple(of_sponsored(info, signed, required, network, now_s))
    except BadMessage as unread:
        do = "Send `info` as the extension's schema says."
        wrong = (Finding(SPONSORED_PERMIT, str(unread), "a permit that can be read", do),)
    yield Decoded(title, facts, wrong)


def _of_payment(
    found: Recognized, signed: SignedPayment, known: Mapping[str, Network], now_s: int
) -> Iterator[Finding]:
    auth, accepted = signed.authorization, found.fields.get("accepted")
    if isinstance(accepted, dict):
        way = Way(Dialect.V2, accepted)
        yield from of_way(way, known)
        yield from of_terms(auth, way) if signed.permit2 is None else ()
    network = network_of(found, signed, known)
    if signed.permit2 is not None:
        if network is not None and not any(each.stops for each in of_way(way, known)):
            offered = convert(accepted, RequirementsV2)
            yield from of_permit2(signed, offered, network, now_s)
        return
    yield from of_window(auth, now_s)
    if network is not None:
        yield from of_signature(auth, signed.signature, network, known)
    elif accepted is None:
        do = "Describe the network in a file (--network-file), to see who signed it."
        yield Finding("network", repr(signed.network)[:80], ", ".join(known), do)
