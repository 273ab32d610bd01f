"""The fields of messages: texts and values of `protocol.values`, in the order of the message."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from x402sim.protocol.crypto import checksum, parse_address, to_hex
from x402sim.protocol.findings import signer_of
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.networks import Network
from x402sim.protocol.recognize import Recognized
from x402sim.protocol.values import Moment, Named, Seconds, Shortened, amount_in, amount_of
from x402sim.protocol.ways import Dialect, Way, network_called

_SHORTENED = ("signature", "paymentHeader")
_PARTS = ("paymentRequirements", "accepts", "items", "resources", "paymentPayload")
"""Fields that are parts of their own."""


def network_of(
    found: Recognized, signed: SignedPayment, known: Mapping[str, Network]
) -> Network | None:
    """Return the network that a payment is signed for: in version 2, as the payment says."""
    network = network_called(signed.network, known)
    if found.dialect is Dialect.V2:
        return Way(Dialect.V2, found.said["accepted"]).own_network() or network
    if network is not None and signed.asset:
        return replace(network, asset=parse_address(signed.asset))
    return network


def facts_of(
    found: Recognized, known: Mapping[str, Network], now_s: int
) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a message, those of a payment with their meaning."""
    if found.signed is not None:
        yield from _payment_facts(found, found.signed, known, now_s)
        return
    for name, value in found.said.items():
        if name not in _PARTS or not isinstance(value, dict | list):
            yield name, _value(name, value, now_s)


def _value(name: str, value: Any, now_s: int) -> Any:
    """Return a field's value, shortened if it is a signature, with its date if it is a time."""
    if name in ("timestamp", "expiresAt") and type(value) is int:
        return Moment(value, now_s, is_ms=True)
    if name in _SHORTENED and isinstance(value, str) and len(value) > 60:
        return Shortened(value)
    return value


def _payment_facts(
    found: Recognized, signed: SignedPayment, known: Mapping[str, Network], now_s: int
) -> Iterator[tuple[str, Any]]:
    auth, named = signed.authorization, network_called(signed.network, known)
    yield "scheme", signed.scheme
    yield "network", _network_in_words(signed.network, named)
    if signed.asset:
        yield "asset", _asset_in_words(signed.asset, named)
    if isinstance(about := found.said.get("resource"), dict):
        yield "resource", str(about.get("url"))
    yield "from", checksum(auth.from_)
    yield "to", checksum(auth.to)
    is_named = named is not None and signed.asset.lower() in ("", to_hex(named.asset))
    yield "value", amount_in(str(auth.value), named if is_named else None)
    yield "validAfter", Moment(auth.valid_after, now_s)
    yield "validBefore", Moment(auth.valid_before, now_s)
    yield "nonce", to_hex(auth.nonce)
    yield "signature", _value("signature", to_hex(signed.signature), now_s)
    if (network := network_of(found, signed, known)) is None:
        yield "signed by", Named(None, "unknown: the token's domain is not known")
        return
    signer = signer_of(auth, signed.signature, network.domain)
    is_from = "`from`" if signer == auth.from_ else "not `from`"
    if signer is None:
        yield "signed by", Named(None, "nobody: it is no signature")
    else:
        yield "signed by", Named(checksum(signer), is_from, ", ")


def way_facts(way: Way, known: Mapping[str, Network]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a way to pay with their meaning."""
    network = way.network(known)
    for name, value in way.said.items():
        if name == "network":
            yield name, _network_in_words(str(value), network)
        elif name == "asset":
            yield name, _asset_in_words(str(value), network)
        elif name == way.amount_name:
            yield name, amount_of(way, known)
        elif name == "maxTimeoutSeconds":
            yield name, Seconds(value)
        elif name == "extra" and isinstance(value, dict):
            yield from ((f"extra.{key}", each) for key, each in value.items())
        else:
            yield name, value


def _network_in_words(name: str, network: Network | None) -> Named:
    if network is None:
        return Named(name, "unknown", ", ")
    return Named(name, network.caip2 if name == network.name else network.name)


def _asset_in_words(asset: str, network: Network | None) -> Named:
    is_known = network is not None and asset.lower() == "0x" + network.asset.hex()
    return Named(asset, network.token_symbol if network and is_known else "")
