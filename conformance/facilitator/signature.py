"""Signatures of accounts with a key: forged, another's, cut, long, and malleable."""

from msgspec.structs import replace

from x402sim.protocol.crypto import ORDER, ZERO_ADDRESS
from x402sim.suite import texts
from x402sim.suite.facilitator.case import (
    agrees,
    as_observed,
    case,
    demand,
    must_refuse,
    pays,
    put,
    refuses,
)
from x402sim.suite.facilitator.payment import Draft
from x402sim.suite.facilitator.play import Play, Tried


def _flipped(draft: Draft) -> Draft:
    raw = bytearray(draft.signature)
    raw[10] ^= 1
    return draft.sealed(bytes(raw))


def _high(draft: Draft) -> Draft:
    """Return the draft with its signature's twin, whose s is high: the token refuses a high s."""
    raw = draft.signature
    s = ORDER - int.from_bytes(raw[32:64])
    return draft.sealed(raw[:32] + s.to_bytes(32) + bytes([55 - raw[64]]))


def _v(draft: Draft, v: int) -> Draft:
    return draft.sealed(draft.signature[:64] + bytes([v]))


def _compact(draft: Draft) -> Draft:
    """Return the draft with its signature in 64 bytes (EIP-2098)."""
    raw = draft.signature
    s = int.from_bytes(raw[32:64]) | ((raw[64] - 27) << 255)
    return draft.sealed(raw[:32] + s.to_bytes(32))


@case(
    "signature/of-others",
    *must_refuse(
        "A signature by another account than the payer is refused", texts.SIGNATURE, texts.RECOVERS
    ),
)
async def _of_others(play: Play) -> list[Tried]:
    thief, payer = await play.room.payer(), await play.room.payer()
    own = await play.draft(payer)
    other = await play.draft(payer)
    found = [
        await play.tried(own.signed(by=thief), "signed by another key"),
        await play.tried(own.sealed(other.signature), "the signature of another payment"),
    ]
    nobody = replace(own.auth, from_=ZERO_ADDRESS)
    for about, raw in (("65 zeros", bytes(65)), ("v 27 of zeros", bytes(64) + b"\x1b")):
        draft = own.signed(from_=nobody.from_).sealed(raw)
        found.append(await play.tried(draft, f"from the zero address, {about}"))
    stolen = own.sealed(other.signed(by=thief).signature)
    found.append(await play.tried(stolen, "signed by another key, for another payment"))
    return found


ROWS = [
    refuses(
        "signature/broken",
        "A broken signature, of no account or of another account, is refused",
        texts.SIGNATURE,
        texts.RECOVERS,
        changes={
            "one bit differs": _flipped,
            "r is 0": lambda draft: draft.sealed(bytes(32) + draft.signature[32:]),
            "s is 0": lambda draft: draft.sealed(
                draft.signature[:32] + bytes(32) + draft.signature[64:]
            ),
            "r is the order": lambda draft: draft.sealed(ORDER.to_bytes(32) + draft.signature[32:]),
            "v is 29": lambda draft: _v(draft, 29),
            "the other v": lambda draft: _v(draft, 55 - draft.signature[64]),
        },
    ),
    refuses(
        "signature/length",
        "A malformed signature is refused",
        texts.BYTES_65,
        texts.INVALID_PAYLOAD,
        changes={
            "empty": put("signature", "0x"),
            "1 byte": lambda draft: draft.sealed(b"\x1b"),
            "32 bytes": lambda draft: draft.sealed(draft.signature[:32]),
            "no hex": put("signature", "0x" + "zz" * 65),
            "words": put("signature", "signed by me"),
            "1000 zeros": lambda draft: draft.sealed(bytes(1000)),
            "100 kB": lambda draft: draft.sealed(b"\x5a" * 100_000),
        },
        so="a signature has 65 bytes; none of these texts is one",
    ),
    pays(
        "signature/form",
        demand(
            "With a signature in another form than the token's, a payment called valid settles",
            texts.derived(
                texts.SIMULATE,
                texts.BYTES_65,
                so="Circle's token refuses a high s, a v other than 27 and 28, and any other "
                "length than 65: who only recovers the signer calls valid what must fail",
            ),
        )(agrees),
        demand(
            "Does the facilitator accept a signature in another form than the token's?",
            texts.silent(texts.BYTES_65, why="it may be put into the token's form"),
            suffix="taken",
        )(as_observed),
        changes={
            "high s": _high,
            "v of 0 or 1": lambda draft: _v(draft, draft.signature[64] - 27),
            "64 bytes": _compact,
            "a byte behind": lambda draft: draft.sealed(draft.signature + b"\0"),
            "a chain id in v": lambda draft: draft.sealed(
                draft.signature[:64] + bytes([draft.signature[64] + 8])
            ),
            "without 0x": lambda draft: draft.with_value("signature", draft.get("signature")[2:]),
        },
    ),
]
