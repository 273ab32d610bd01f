"""The family of headers and bodies: 402, payment and receipt, of each version, right and wrong."""

import base64
import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from tests.suite_vectors.making import REFUSES, Maker, key, secret, slug_of
from x402sim.protocol import header, x402
from x402sim.protocol.crypto import checksum, sign, to_hex
from x402sim.protocol.eip3009 import Authorization, transfer_digest
from x402sim.protocol.messages import (
    BadMessage,
    PaymentRequired,
    PaymentRequirements,
    Receipt,
    decode,
)
from x402sim.protocol.networks import BASE_SEPOLIA, NETWORKS, Network
from x402sim.spec.ground import explicit
from x402sim.suite import texts

URL = "https://shop.example/report"
Json = dict[str, Any]


def wanted(network: Network, amount: int) -> PaymentRequirements:
    return PaymentRequirements(
        scheme=x402.SCHEME, network=network.name, pay_to=checksum(key("shop").address),
        asset=checksum(network.asset), max_amount_required=str(amount), max_timeout_seconds=300,
        resource="/report",
    )  # fmt: skip


def offer(network: Network, amount: int, version: int = 2) -> Json:
    """Return an offer as JSON."""
    if version == 1:
        found: Any = x402.requirements_v1(wanted(network, amount), network, url=URL)
    else:
        found = x402.requirements_v2(wanted(network, amount), network)
    its: Json = json.loads(msgspec.json.encode(found))
    return its


def payload(name: str, amount: int) -> Json:
    """Return the payload of a payment, signed."""
    auth = Authorization(key(f"payer {name}").address, key("shop").address, amount, 1_740_672_089, 1_740_672_154, secret(f"nonce {name}"))  # fmt: skip
    signature = sign(transfer_digest(auth, BASE_SEPOLIA.domain), key(f"payer {name}"))
    found: Json = json.loads(msgspec.json.encode(x402.exact_payload(auth, signature)))
    return found


def required(version: int) -> Iterator[tuple[str, Json]]:
    """Yield 402s of a version of the standard."""
    one = offer(BASE_SEPOLIA, 10_000, version)
    two = [offer(network, 20_000, version) for network in list(NETWORKS.values())[:2]]
    usual: Json = {"x402Version": version, "error": "a payment is required", "accepts": [one]}
    if version == 2:
        usual["resource"] = {"url": URL, "description": "one report", "mimeType": "application/json"}  # fmt: skip
    yield "one offer", usual
    yield "two offers", {**usual, "accepts": two}
    yield "the greatest amount", {**usual, "accepts": [{**one, "amount" if version == 2 else "maxAmountRequired": str(2**256 - 1)}]}  # fmt: skip
    yield "an error outside ASCII", {**usual, "error": "支払いが必要です – 💵"}
    yield "a field that nobody knows", {**usual, "later": {"more": [1, None]}}
    yield "an offer with a field that nobody knows", {**usual, "accepts": [{**one, "later": True}]}
    yield "an offer without extra", {**usual, "accepts": [{name: each for name, each in one.items() if name != "extra"}]}  # fmt: skip
    if version == 2:
        yield "an extension", {**usual, "extensions": x402.IDENTIFIER_OFFER}
        yield "a resource of a URL alone", {**usual, "resource": {"url": URL}}


def payment(version: int) -> Iterator[tuple[str, Json]]:
    accepted = offer(BASE_SEPOLIA, 10_000, version)
    usual: Json = {"x402Version": version, "payload": payload("one", 10_000)}
    usual |= {"accepted": accepted} if version == 2 else {"scheme": "exact", "network": accepted["network"]}  # fmt: skip
    yield "usual", usual
    yield "another payload", {**usual, "payload": payload("two", 10_000)}
    yield "a field that nobody knows", {**usual, "later": "more"}
    if version == 2:
        yield "a resource", {**usual, "resource": {"url": URL, "description": "ein Bericht für 1 €"}}  # fmt: skip
        yield "an extension", {**usual, "extensions": x402.named("order-0123456789")}
        yield "an empty extension", {**usual, "extensions": {}}


def receipt(version: int) -> Iterator[tuple[str, Json]]:
    network = x402.network_name(2 if version == 2 else 1, BASE_SEPOLIA)
    usual = {"success": True, "transaction": to_hex(secret("transaction")), "network": network, "payer": checksum(key("payer one").address)}  # fmt: skip
    yield "success", usual
    yield "failure", {**usual, "success": False, "transaction": "", "errorReason": "insufficient_funds"}  # fmt: skip
    yield "pending", {**usual, "success": False, "errorReason": "settlement_pending"}
    yield "a field that nobody knows", {**usual, "later": [1, 2]}


def of_spec() -> Iterator[tuple[str, str, Json]]:
    """Yield the messages of the specification."""
    terms = wanted(BASE_SEPOLIA, 10_000)
    for about, message in {
        "usual": PaymentRequired("Payment Required", "pay_0123456789abcdef", terms, "10000 base units are required", terms.network),
        "a description": PaymentRequired("Payment Required", "pay_fedcba9876543210", msgspec.structs.replace(terms, description="one report"), "10000 base units are required", terms.network),
    }.items():  # fmt: skip
        yield "required", about, json.loads(msgspec.json.encode(message))
    for about in ("one", "two"):
        auth = Authorization(key(f"payer {about}").address, key("shop").address, 10_000, 1_740_672_089, 1_740_672_389, secret(f"nonce {about}"))  # fmt: skip
        text = header.encode_header(auth, sign(transfer_digest(auth, BASE_SEPOLIA.domain), key(f"payer {about}")), BASE_SEPOLIA)  # fmt: skip
        yield "payment", f"payer {about}", json.loads(header.json_of_header(text))
    done = Receipt(success=True, payment_id="pay_0123456789abcdef", tx_hash=to_hex(secret("transaction")), timestamp=1_740_672_100_000)  # fmt: skip
    yield "receipt", "usual", json.loads(msgspec.json.encode(done))


KINDS: Mapping[tuple[Any, str], Callable[[str], Any]] = {
    (1, "required"): lambda text: decode(text.encode(), x402.RequiredV1),
    (2, "required"): x402.read_required,
    (1, "payment"): lambda text: x402.read_payment(1, text),
    (2, "payment"): lambda text: x402.read_payment(2, text),
    (1, "receipt"): lambda text: decode(x402.from_base64(text), x402.Settlement),
    (2, "receipt"): lambda text: decode(x402.from_base64(text), x402.Settlement),
    ("spec", "required"): lambda text: decode(text.encode(), PaymentRequired),
    ("spec", "payment"): header.read_header,
    ("spec", "receipt"): lambda text: decode(text.encode(), Receipt),
}
"""Our own reader of each message."""
OF_SPEC = {
    "required": explicit("2.2: paymentId", "2.2: paymentRequirements"),
    "payment": explicit("2.3: An opaque hex string", "2.3: It carries the EIP-3009"),
    "receipt": explicit("4.1: paymentId | string", "4.1: txHash"),
}
CODED = {
    (1, "required"): (texts.REQUIRED_CODED_V1, texts.FIELDS_V1),
    (2, "required"): (texts.REQUIRED_CODED, texts.FIELDS),
    (1, "payment"): (texts.PAYMENT_CODED_V1, texts.PAYMENT_FIELDS_V1),
    (2, "payment"): (texts.PAYMENT_CODED, texts.PAYMENT_FIELDS),
    (1, "receipt"): (texts.RESPONSE_CODED_V1, texts.RECEIPT_FIELDS_V1),
    (2, "receipt"): (texts.RESPONSE_CODED, texts.RECEIPT_FIELDS),
    **{("spec", message): ground.sentences for message, ground in OF_SPEC.items()},
}
"""The sentence about the coding of each message, and the one about the fields."""


WORDS = {"required": "402", "payment": "payment", "receipt": "receipt"}
BECAUSE = {
    "payment": "a service that reads a payment in such a text asks the facilitator in vain",
    "required": "a payer who reads an offer in such a text signs a payment for nobody",
    "receipt": "a payer who reads a receipt in such a text cannot tell whether the payment was settled",
}


OPTIONAL = ("extra", "mimetype")
"""The optional fields of an offer, in ids: without one the message is as good."""
FOR_PEOPLE = ("error", "message", "description", "mimetype", "resource", "payer")
"""Fields, in ids, by which nobody pays: a reader may do without."""


def refusing(version: Any, message: str, *more: Any) -> Any:
    """Return the ground of a refusal: of a payment the text demands one, of the others we do."""
    sentences = (*more, CODED[version, message][1], CODED[version, message][0])
    if message == "payment" and version != "spec":
        so = "the payment is malformed, and section 9 has a refusal for malformed payments"
        return texts.derived(*sentences, texts.INVALID_PAYLOAD, so=so)
    return texts.ours(*sentences, because=BECAUSE[message])


def title(version: Any, message: str) -> str:
    of = "the specification" if version == "spec" else f"version {version}"
    return f"{WORDS[message]} of {of}"


def is_body(version: Any, message: str) -> bool:
    return (version, message) == (1, "required") or (version == "spec" and message != "payment")


def written(version: Any, message: str, value: Any) -> str:
    """Return a message as its header or body."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if is_body(version, message):
        return text
    if version == "spec":
        return to_hex(text.encode())
    return base64.b64encode(text.encode()).decode()


def messages() -> Maker:
    """Make every message both ways, and what is none."""
    made = Maker("headers")
    for version in (1, 2):
        for message, its in {"required": required, "payment": payment, "receipt": receipt}.items():
            values = list(its(version))
            for about, value in values:
                _valid(made, version, message, about, value, texts.explicit(*CODED[version, message]))  # fmt: skip
            _miscoded(made, version, message, values[0][1])
            _wrong(made, version, message, values[0][1])
    for message, about, value in of_spec():
        _valid(made, "spec", message, about, value, OF_SPEC[message])
        if about in ("usual", "payer one"):
            _miscoded(made, "spec", message, value)
        if about == "usual":
            _wrong(made, "spec", message, value)
    return made


def _read(version: Any, message: str, text: str) -> bool:
    try:
        KINDS[version, message](text)
    except BadMessage:
        return False
    return True


def _valid(made: Maker, version: Any, message: str, about: str, value: Json, ground: Any) -> None:
    text, slug = written(version, message, value), f"{message}-{version}-{slug_of(about)}"
    whole = f"A {title(version, message)}: {about}"  # fmt: skip
    given = {"version": version, "message": message}
    assert _read(version, message, text), whole
    known = {name: each for name, each in value.items() if name != "later"}
    if "accepts" in known:
        known["accepts"] = [{name: it for name, it in each.items() if name != "later"} for each in known["accepts"]]  # fmt: skip
    made.add(f"decode-{slug}", whole, "decode", {**given, "text": text}, {"value": known}, ground)
    if "later" not in json.dumps(value):
        made.add(f"encode-{slug}", whole, "encode", {**given, "value": value}, {"value": value}, ground)  # fmt: skip


def _miscoded(made: Maker, version: Any, message: str, value: Json) -> None:
    """Add texts that hold no message, and texts in other alphabets of base64."""
    raw, good = json.dumps(value).encode(), written(version, message, value)

    def coded(content: bytes) -> str:
        if is_body(version, message):
            return content.decode("latin-1")
        return to_hex(content) if version == "spec" else base64.b64encode(content).decode()

    wrong = {
        "empty": "",
        "no JSON": coded(b"payment required"),
        "half of the JSON": coded(raw[: len(raw) // 2]),
        "a list": coded(b"[" + raw + b"]"),
        "a text": coded(b'"exact"'),
        "null": coded(b"null"),
        "a number": coded(b"402"),
        "an empty object": coded(b"{}"),
    }  # fmt: skip
    if version == "spec" and message == "payment":
        wrong |= {"JSON without hex": raw.decode(), "an odd number of digits": good[:-1], "no hex": f"0xzz{good[4:]}"}  # fmt: skip
    elif not is_body(version, message):
        wrong |= {"JSON without base64": raw.decode(), "base64 twice": coded(good.encode()), "hex": to_hex(raw)}  # fmt: skip
    ground = refusing(version, message)
    for about, text in wrong.items():
        assert not _read(version, message, text), (version, message, about)
        made.add(f"decode-{message}-{version}-no-{slug_of(about)}", f"No {title(version, message)}: {about}", "decode",
                 {"version": version, "message": message, "text": text}, REFUSES, ground)  # fmt: skip
    if is_body(version, message) or version == "spec":
        return
    spaced = base64.b64encode(json.dumps({**value, "pad": "??>>~~"}, separators=(",", ": ")).encode()).decode()  # fmt: skip
    why = texts.silent(CODED[version, message][0], why="the text says base64, and no more")
    for about, text in {"bytes that are no UTF-8": base64.b64encode(raw[:-1] + b', "later": "\xff"}').decode(), "no padding": good.rstrip("="), "the alphabet of URLs": base64.urlsafe_b64encode(base64.b64decode(spaced)).decode(), "characters outside of base64": f"%%%{good}", "a space before": f" {good}", "a line break inside": f"{good[:40]}\n{good[40:]}"}.items():  # fmt: skip
        if text != good:
            made.add(f"decode-{message}-{version}-{slug_of(about)}", f"A {title(version, message)} with {about}", "decode",
                     {"version": version, "message": message, "text": text}, None, why)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field; not inside of extra, extensions, resource or the payload."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield (*path, name)
            if name not in ("extra", "extensions", "payload", "resource"):
                yield from places(each, (*path, name))
    elif isinstance(value, list):
        yield from places(value[0], (*path, 0))


def changed(value: Json, path: tuple[Any, ...], new: Any) -> Json:
    """Return a copy with another value in one place; without the field for `...`."""
    found = copy.deepcopy(value)
    inner: Any = found
    for name in path[:-1]:
        inner = inner[name]
    if new is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return found


def _wrong(made: Maker, version: Any, message: str, value: Json) -> None:
    """Add messages without a field, and with a value of another type."""
    fields = CODED[version, message][1]
    for path in places(value):
        its: Any = value
        for name in path:
            its = its[name]
        name = slug_of(".".join(map(str, path)).replace("accepts.0", "offer"))
        tries = {"missing": ..., "null": None, "a-list": [its], "an-object": {"value": its}}
        if isinstance(its, dict):
            tries = {"missing": ..., "null": None, "a-text": "exact", "a-list": [its]}
        elif isinstance(its, list):
            tries = {"missing": ..., "null": None, "a-text": "exact", "an-object": its[0]}
        elif isinstance(its, str):
            tries["a-number"] = 7
        elif not isinstance(its, bool):
            tries["a-text-of-digits"] = str(its)
        if path[-1] == "x402Version":
            tries |= {"3": 3, "0": 0}
        if name.split("-")[-1] in OPTIONAL:
            del tries["missing"]
        for how, new in tries.items():
            text = written(version, message, changed(value, path, new))
            is_taken = _read(version, message, text) or name.split("-")[-1] in FOR_PEOPLE
            is_demanded = not is_taken and how not in ("a-number", "a-text-of-digits", "null")
            about = f"{'.'.join(map(str, path))} is {how.replace('-', ' ')}"
            given = {"version": version, "message": message, "text": text}
            slug = f"decode-{message}-{version}-{name}-{how}"
            if is_demanded:
                is_version = path[-1] == "x402Version" and version == 2
                ground = refusing(version, message, *([texts.VERSION] if is_version else []))
                made.add(slug, f"No {title(version, message)}: {about}", "decode", given, REFUSES, ground)  # fmt: skip
            elif how in ("missing", "a-number", "a-text-of-digits"):
                why = "the writer must send this field, with this type; no text says what a reader does otherwise"
                made.add(slug, f"A {title(version, message)}: {about}", "decode", given, None, texts.silent(fields, why=why))  # fmt: skip
