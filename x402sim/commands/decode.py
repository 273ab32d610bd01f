"""`decode`: any message of a payment, field by field, and what is wrong in it."""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from x402sim.clock import Clock
from x402sim.commands.common import NOT_ALL_HELD, AsJson, Misuse, NetworkFile, as_misuse
from x402sim.commands.steps import print_facts, print_findings
from x402sim.protocol.crypto import checksum, parse_address, to_hex
from x402sim.protocol.findings import (
    Finding,
    in_units,
    of_signature,
    of_terms,
    of_way,
    of_window,
    signer_of,
)
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.network_file import known_networks
from x402sim.protocol.networks import Network
from x402sim.protocol.recognize import MessageKind, Recognized, messages_in, recognize
from x402sim.protocol.ways import Dialect, Way, network_called, ways_of
from x402sim.text.times import moment

MOST = 1 << 20
"""The most characters that are read."""
_SHORTENED = ("signature", "paymentHeader")


def _instead(text: str) -> str:
    """Return what to do with the name of a file, or a URL; nothing for any other text."""
    if text.startswith(("http://", "https://")):
        return "it is a URL; `doctor URL` asks it, and examines its 402"
    is_file = text != "-" and len(text) < 256 and Path(text).is_file()
    return f"it is the name of a file; read it with `decode - < {text}`" if is_file else ""


def decode(
    header: Annotated[
        str, typer.Argument(help="A header's value, a body, or - for stdin.", metavar="HEADER")
    ],
    network_file: NetworkFile = None,
    as_json: AsJson = False,
) -> None:
    """Decode any message of a payment, and say what is wrong in it.

    It reads payments (the header of POST /api/pay, X-PAYMENT, PAYMENT-SIGNATURE), 402s (bodies and
    PAYMENT-REQUIRED), payment requirements, and receipts (X-PAYMENT-RESPONSE, PAYMENT-RESPONSE):
    of our two steps, which are Cronos', and of the x402 standard, versions 1 and 2; as JSON,
    base64 or 0x-hex; and in a whole HTTP answer. Of a payment it recovers who signed it.

    Example: curl -si URL | x402sim decode -

    Exit code: 0 if nothing is wrong, 1 if something is, 2 if it cannot be read.
    """
    with as_misuse():
        text = sys.stdin.read(MOST) if header == "-" else header[:MOST]
        known = known_networks(network_file)
    first, *others = messages_in(text)
    try:
        found = recognize(first)
    except BadMessage as wrong:
        raise Misuse(f"cannot decode it: {_instead(header) or wrong}") from wrong
    now_s = Clock().now_s()
    decoded = list(explain(found, known, now_s))
    for other in others:
        decoded += _explain_header(other, known, now_s)
    findings = [finding for each in decoded for finding in each.findings]
    if as_json:
        told = {
            "kind": found.kind.name.lower(),
            "dialect": found.dialect.value,
            "encoding": found.encoding,
            "content": found.said,
            "parts": [{"title": each.title, "facts": each.facts} for each in decoded],
            "findings": [asdict(each) for each in findings],
        }
        typer.echo(json.dumps(told, indent=2))
    else:
        for each in decoded:
            typer.secho(each.title, bold=True)
            print_facts(each.facts)
        print_findings(findings)
        if not findings:
            typer.echo("Nothing is wrong in it.")
    if any(each.stops for each in findings):
        raise typer.Exit(NOT_ALL_HELD)


# --- a message in words ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decoded:
    """A message for people: what it is, its fields in words, and what is wrong in it."""

    title: str
    facts: Mapping[str, str]
    findings: tuple[Finding, ...]


def explain(found: Recognized, known: Mapping[str, Network], now_s: int) -> Iterator[Decoded]:
    """Yield the parts of a message: itself, the ways to pay in it, and a payment in it."""
    findings = list(_of_header(found))
    if found.shape and not (findings and found.kind is MessageKind.SETTLEMENT):
        do = "Compare it with the message that the other party's documentation shows."
        wanted = f"a {found.kind.value} that can be read"
        findings.append(Finding("shape", found.shape, wanted, do))
    ways = list(ways_of(found.said))
    if (
        found.kind
        in (MessageKind.REQUIRED, MessageKind.RECEIPT, MessageKind.ERROR, MessageKind.SETTLEMENT)
        or not ways
    ):
        if found.signed is not None:
            findings += _of_payment(found, found.signed, known, now_s)
        facts = {"header": found.header} if found.header else {}
        facts |= _facts(found, known, now_s)
        kind = found.kind.value
        title = f"{kind[:1].upper()}{kind[1:]} in {found.dialect.value}, {found.encoding}"
        yield Decoded(title, facts, tuple(findings))
    for way in ways:
        title = f"Payment requirements: {way.dialect.value}"
        yield Decoded(title, dict(_way_facts(way, known)), tuple(of_way(way, known)))
    if found.kind is MessageKind.SETTLEMENT and not found.shape:
        yield from _inner(found, ways[0], known, now_s)


def _explain_header(line: str, known: Mapping[str, Network], now_s: int) -> list[Decoded]:
    """Return the parts of a message in a header, which stands beside another message."""
    try:
        return list(explain(recognize(line), known, now_s))
    except BadMessage as wrong:
        name = line.partition(":")[0]
        do = "Encode the JSON, or leave the header out: clients of the x402 standard read it."
        return [Decoded(name, {}, (Finding(name, str(wrong), "base64 of JSON", do),))]


def _of_header(found: Recognized) -> Iterator[Finding]:
    """Yield what is wrong with the header that a payment is in, and with its encoding."""
    wanted, do = "base64 of the JSON", "Encode the JSON: as it is, it is no header's value."
    inner = found.said["paymentHeader"] if found.kind is MessageKind.SETTLEMENT else ""
    if isinstance(inner, dict) or str(inner).lstrip().startswith("{"):
        yield Finding("paymentHeader", "JSON", f"{wanted}, or 0x-hex", do)
    if found.kind is not MessageKind.PAYMENT or not found.name:
        return
    if found.name.lower() != found.header.lower():
        do_this = f"Send it there: it is a payment in {found.dialect.value}."
        yield Finding("header", found.name, found.header, do_this)
    if found.encoding == "JSON":
        yield Finding("encoding", "JSON", wanted, do)


def _inner(
    found: Recognized, way: Way, known: Mapping[str, Network], now_s: int
) -> Iterator[Decoded]:
    """Yield the payment header in the body of a settlement, compared with its requirements."""
    try:
        inner = recognize(found.said["paymentHeader"])
        terms = of_terms(inner.signed.authorization, way) if inner.signed else ()
    except BadMessage as wrong:
        do = "Send the header as the wallet made it."
        finding = Finding("paymentHeader", str(wrong), "a payment header", do)
        yield Decoded("Payment header", {}, (finding,))
        return
    for each in explain(inner, known, now_s):
        yield Decoded(each.title, each.facts, (*each.findings, *terms))


# --- a payment ---------------------------------------------------------------------------


def _of_payment(
    found: Recognized, signed: SignedPayment, known: Mapping[str, Network], now_s: int
) -> Iterator[Finding]:
    """Yield what is wrong with a signed payment."""
    auth, accepted = signed.authorization, found.said.get("accepted")
    if isinstance(accepted, dict):
        way = Way(Dialect.V2, accepted)
        yield from of_way(way, known)
        yield from of_terms(auth, way)
    network = _network_of(found, signed, known)
    yield from of_window(auth, now_s)
    if network is not None:
        yield from of_signature(auth, signed.signature, network, known)
    elif accepted is None:
        do = "Describe the network in a file (--network-file), to see who signed it."
        yield Finding("network", repr(signed.network)[:80], ", ".join(known), do)


def _network_of(
    found: Recognized, signed: SignedPayment, known: Mapping[str, Network]
) -> Network | None:
    """Return the network that a payment is signed for: in version 2, as the payment says."""
    network = network_called(signed.network, known)
    if found.dialect is Dialect.V2:
        return Way(Dialect.V2, found.said["accepted"]).own_network() or network
    if network is not None and signed.asset:
        return replace(network, asset=parse_address(signed.asset))
    return network


# --- fields in words ---------------------------------------------------------------------


def _facts(
    found: Recognized, known: Mapping[str, Network], now_s: int
) -> Iterator[tuple[str, str]]:
    """Yield the fields of a message, those of a payment with their meaning."""
    if found.signed is not None:
        yield from _payment_facts(found, found.signed, known, now_s)
        return
    left_out = ("paymentRequirements", "accepts")
    for name, value in found.said.items():
        if name not in left_out:
            yield name, _in_words(name, value, now_s)


def _in_words(name: str, value: Any, now_s: int) -> str:
    """Return a field's value, shortened if it is a signature, with its date if it is a time."""
    if name in ("timestamp", "expiresAt") and type(value) is int:
        return f"{value} = {moment(value // 1000, now_s)}"
    text = value if isinstance(value, str) else json.dumps(value)
    if name in _SHORTENED and len(text) > 60:
        return f"{text[:42]}… ({len(text)} characters)"
    return text


def _payment_facts(
    found: Recognized, signed: SignedPayment, known: Mapping[str, Network], now_s: int
) -> Iterator[tuple[str, str]]:
    auth, named = signed.authorization, network_called(signed.network, known)
    yield "scheme", signed.scheme
    yield "network", _network_in_words(signed.network, named)
    if signed.asset:
        yield "asset", _asset_in_words(signed.asset, named)
    if isinstance(about := found.said.get("resource"), dict):
        yield "resource", str(about.get("url"))
    yield "from", checksum(auth.from_)
    yield "to", checksum(auth.to)
    yield "value", in_units(str(auth.value), named)
    yield "validAfter", f"{auth.valid_after} = {moment(auth.valid_after, now_s)}"
    yield "validBefore", f"{auth.valid_before} = {moment(auth.valid_before, now_s)}"
    yield "nonce", to_hex(auth.nonce)
    yield "signature", _in_words("signature", to_hex(signed.signature), now_s)
    if (network := _network_of(found, signed, known)) is None:
        yield "signed by", "unknown: the token's domain is not known"
        return
    signer = signer_of(auth, signed.signature, network.domain)
    is_from = "`from`" if signer == auth.from_ else "not `from`"
    yield "signed by", f"{checksum(signer)}, {is_from}" if signer else "nobody: it is no signature"


def _way_facts(way: Way, known: Mapping[str, Network]) -> Iterator[tuple[str, str]]:
    network = way.network(known)
    for name, value in way.said.items():
        if name == "network":
            yield name, _network_in_words(str(value), network)
        elif name == "asset":
            yield name, _asset_in_words(str(value), network)
        elif name == way.amount_name:
            yield name, in_units(value, network)
        elif name == "maxTimeoutSeconds":
            yield name, f"{value} s"
        elif name == "extra" and isinstance(value, dict):
            yield from ((f"extra.{key}", str(each)) for key, each in value.items())
        else:
            yield name, value if isinstance(value, str) else json.dumps(value)


def _network_in_words(name: str, network: Network | None) -> str:
    if network is None:
        return f"{name}, unknown"
    return f"{name} = {network.caip2 if name == network.name else network.name}"


def _asset_in_words(asset: str, network: Network | None) -> str:
    is_known = network is not None and asset.lower() == "0x" + network.asset.hex()
    return f"{asset} = {network.token_symbol}" if network and is_known else asset
