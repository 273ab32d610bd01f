"""The families of EIP-712: domains, structs, digests, signatures, calls; and forms of signatures."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.suite_vectors.making import REFUSES, Maker, key, secret, slug_of
from x402sim.protocol import abi
from x402sim.protocol.crypto import (
    ORDER,
    UNDEPLOYED,
    ZERO_ADDRESS,
    BadSignature,
    checksum,
    keccak256,
    recover,
    sign,
    to_hex,
    unwrapped,
    words,
)
from x402sim.protocol.eip3009 import (
    CANCEL_TYPEHASH,
    RECEIVE_TYPEHASH,
    TRANSFER_TYPEHASH,
    Authorization,
    Domain,
    digest,
    separator,
)
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.networks import BASE_SEPOLIA, NETWORKS
from x402sim.suite import texts

TYPES = {
    "TransferWithAuthorization": TRANSFER_TYPEHASH,
    "ReceiveWithAuthorization": RECEIVE_TYPEHASH,
}
CANCEL = "CancelAuthorization"
START_S = 1_740_672_089
"""The beginning of windows: the time in the specification's own example."""


def domain_in(domain: Domain) -> dict[str, Any]:
    """Return a domain as vectors have it; the chain id is a text, as JSON's numbers end at 2^53."""
    return {
        "name": domain.name,
        "version": domain.version,
        "chainId": str(domain.chain_id),
        "verifyingContract": checksum(domain.verifying_contract),
    }


def message_in(auth: Authorization) -> dict[str, Any]:
    """Return an authorization as vectors have it."""
    return {
        "from": checksum(auth.from_),
        "to": checksum(auth.to),
        "value": str(auth.value),
        "validAfter": str(auth.valid_after),
        "validBefore": str(auth.valid_before),
        "nonce": to_hex(auth.nonce),
    }


def authorization(name: str, **changes: Any) -> Authorization:
    """Return an authorization whose payer, payee and nonce depend on the name."""
    auth = Authorization(
        from_=key(f"payer {name}").address,
        to=key(f"payee {name}").address,
        value=10_000,
        valid_after=START_S,
        valid_before=START_S + 60,
        nonce=secret(f"nonce {name}"),
    )
    return msgspec.structs.replace(auth, **changes)


def domains() -> Iterator[tuple[str, Domain]]:
    """Yield the domain of each known token, and unusual ones."""
    for network in NETWORKS.values():
        yield f"{network.token_name} of {network.name}", network.domain
    usual = BASE_SEPOLIA.domain
    for about, changes in {
        "an empty name": {"name": ""},
        "an empty version": {"version": ""},
        "a name outside ASCII": {"name": "ドル €"},
        "an emoji in the name": {"name": "💵"},
        "a long name": {"name": "USD Coin " * 20},
        "a version that is no number": {"version": "2.2-beta"},
        "chain id 1": {"chain_id": 1},
        "a chain id above 2^53": {"chain_id": 2**53 + 1},
        "the greatest chain id": {"chain_id": MAX_UINT256},
        "the zero contract": {"verifying_contract": ZERO_ADDRESS},
    }.items():
        yield about, msgspec.structs.replace(usual, **changes)


def messages() -> Iterator[tuple[str, Authorization]]:
    """Yield authorizations, usual and at the ends of what fits."""
    for number in range(1, 7):
        yield f"usual {number}", authorization(f"usual {number}", value=10**number)
    for about, changes in {
        "nothing": {"value": 0},
        "one base unit": {"value": 1},
        "more than 2^53": {"value": 2**53 + 1},
        "the greatest value": {"value": MAX_UINT256},
        "a window from 0": {"valid_after": 0},
        "an endless window": {"valid_before": MAX_UINT256},
        "an empty window": {"valid_before": START_S},
        "a nonce of zeros": {"nonce": bytes(32)},
        "a nonce of ones": {"nonce": b"\xff" * 32},
        "a nonce that begins with zeros": {"nonce": secret("short")[:20].rjust(32, b"\0")},
        "to the zero address": {"to": ZERO_ADDRESS},
        "to the payer": {"to": key("payer to the payer").address},
    }.items():
        yield about, authorization(about, **changes)


def typed_data() -> Maker:
    """Make domains, structs, digests, signatures and calls."""
    made = Maker("typed-data")
    for about, domain in domains():
        made.add(f"domain-{slug_of(about)}", f"The domain of {about}", "domain",
                 {"domain": domain_in(domain)}, {"hash": to_hex(separator(domain))},
                 texts.explicit(texts.SEPARATOR, texts.TOKEN_NAME, texts.TOKEN_VERSION))  # fmt: skip
    every, usual = list(messages()), BASE_SEPOLIA.domain
    for about, auth in every:
        for name, typehash in TYPES.items():
            kind = name.removesuffix("WithAuthorization").lower()
            if kind == "receive" and not about.startswith("usual"):
                continue
            given = {"type": name, "message": message_in(auth)}
            fields = msgspec.structs.astuple(auth)
            struct = keccak256(typehash + words(*fields))
            ground = texts.explicit(texts.HASH_STRUCT, texts.TYPEHASHES)
            made.add(f"struct-{kind}-{slug_of(about)}", f"The struct of {name}: {about}", "struct",
                     given, {"hash": to_hex(struct)}, ground)  # fmt: skip
            made.add(f"digest-{kind}-{slug_of(about)}", f"The digest of {name}: {about}", "digest",
                     {"domain": domain_in(usual), **given},
                     {"hash": to_hex(digest(usual, typehash, *fields))},
                     texts.explicit(texts.ENCODE, texts.AUTHORIZATION_TYPES))  # fmt: skip
    for about in ("usual 1", "a nonce of zeros"):
        auth = dict(every)[about]
        given = {"type": CANCEL, "message": {"authorizer": checksum(auth.from_), "nonce": to_hex(auth.nonce)}}  # fmt: skip
        struct = keccak256(CANCEL_TYPEHASH + words(auth.from_, auth.nonce))
        made.add(f"struct-cancel-{slug_of(about)}", f"The struct of {CANCEL}: {about}", "struct",
                 given, {"hash": to_hex(struct)}, texts.explicit(texts.HASH_STRUCT))  # fmt: skip
        made.add(f"digest-cancel-{slug_of(about)}", f"The digest of {CANCEL}: {about}", "digest",
                 {"domain": domain_in(usual), **given},
                 {"hash": to_hex(digest(usual, CANCEL_TYPEHASH, auth.from_, auth.nonce))},
                 texts.explicit(texts.ENCODE))  # fmt: skip
    for (about, domain), (_, auth) in zip(domains(), itertools.cycle(every)):
        if domain == usual:
            continue
        given = {"domain": domain_in(domain), "type": "TransferWithAuthorization", "message": message_in(auth)}  # fmt: skip
        made.add(f"digest-{slug_of(about)}", f"The digest for {about}", "digest", given,
                 {"hash": to_hex(digest(domain, TRANSFER_TYPEHASH, *msgspec.structs.astuple(auth)))},
                 texts.explicit(texts.ENCODE, texts.TOKEN_NAME))  # fmt: skip
    for about, auth in every:
        _signed(made, about, auth, usual)
    return made


def _signed(made: Maker, about: str, auth: Authorization, domain: Domain) -> None:
    secret_key = key(f"payer {about}")
    it = digest(domain, TRANSFER_TYPEHASH, *msgspec.structs.astuple(auth))
    signature, slug = sign(it, secret_key), slug_of(about)
    given = {"domain": domain_in(domain), "type": "TransferWithAuthorization", "message": message_in(auth)}  # fmt: skip
    made.add(f"sign-{slug}", f"The payer's signature: {about}", "sign",
             {**given, "privateKey": to_hex(secret_key.secret)},
             {"digest": to_hex(it), "signer": checksum(secret_key.address), "signature": to_hex(signature)},
             texts.derived(texts.SIGNATURE, texts.BYTES_65, texts.CALLS,
                           so="the token takes 65 bytes with a low s and a v of 27 or 28"))  # fmt: skip
    call = abi.transfer_with_authorization(auth, signature)
    made.add(f"calldata-{slug}", f"The call of the token: {about}", "calldata",
             {"message": message_in(auth), "signature": to_hex(signature)}, {"data": to_hex(call)},
             texts.explicit(texts.CALLS, texts.CALL))  # fmt: skip
    if about.startswith("usual"):
        longer = signature + secret(f"more of {about}")
        call = abi.transfer_with_authorization(auth, longer)
        made.add(f"calldata-wallet-{slug}", f"The call with a contract's signature: {about}",
                 "calldata", {"message": message_in(auth), "signature": to_hex(longer)},
                 {"data": to_hex(call)},
                 texts.derived(texts.CALLS, so="only the overload with bytes takes a signature of another length"))  # fmt: skip


# --- forms of signatures ---------------------------------------------------------------------


def _form(raw: bytes, s: int | None = None, v: int | None = None) -> bytes:
    kept = int.from_bytes(raw[32:64]) if s is None else s
    return raw[:32] + kept.to_bytes(32) + bytes([raw[64] if v is None else v])


def signatures() -> Maker:
    """Make recoveries, forms that the token refuses, and wrappers."""
    made, domain = Maker("signatures"), BASE_SEPOLIA.domain
    kind = "TransferWithAuthorization"
    for about, auth in messages():
        raw = sign(digest(domain, TRANSFER_TYPEHASH, *msgspec.structs.astuple(auth)), key(f"payer {about}"))  # fmt: skip
        given = {"domain": domain_in(domain), "type": kind, "message": message_in(auth)}
        made.add(f"recover-{slug_of(about)}", f"The signer: {about}", "recover",
                 {**given, "signature": to_hex(raw)}, {"address": checksum(auth.from_)},
                 texts.explicit(texts.RECOVERS))  # fmt: skip
    auth = authorization("usual 1", value=10)
    it = digest(domain, TRANSFER_TYPEHASH, *msgspec.structs.astuple(auth))
    raw = sign(it, key("payer usual 1"))
    given = {"domain": domain_in(domain), "type": kind, "message": message_in(auth)}
    for field, value in {
        "to": key("thief").address,
        "value": 11,
        "valid_after": START_S - 1,
        "valid_before": START_S + 61,
        "nonce": secret("another nonce"),
        "from_": key("thief").address,
    }.items():
        other = msgspec.structs.replace(auth, **{field: value})
        digest_of = digest(domain, TRANSFER_TYPEHASH, *msgspec.structs.astuple(other))
        made.add(f"recover-other-{slug_of(field)}", f"Another {field.rstrip('_')} recovers another signer",
                 "recover", {**given, "message": message_in(other), "signature": to_hex(raw)},
                 {"address": checksum(recover(digest_of, raw))}, texts.explicit(texts.RECOVERS, texts.SIGNATURE))  # fmt: skip
    for field, change in {"name": "USD Coin", "version": "1", "chain_id": 8453, "verifying_contract": key("token").address}.items():  # fmt: skip
        other_domain = msgspec.structs.replace(domain, **{field: change})
        digest_of = digest(other_domain, TRANSFER_TYPEHASH, *msgspec.structs.astuple(auth))
        made.add(f"recover-domain-{slug_of(field)}", f"Another {field.replace('_', ' ')} in the domain recovers another signer",
                 "recover", {**given, "domain": domain_in(other_domain), "signature": to_hex(raw)},
                 {"address": checksum(recover(digest_of, raw))}, texts.explicit(texts.RECOVERS, texts.SIGNATURE))  # fmt: skip
    _broken(made, given, it, raw)
    _open(made, given, raw)
    _wrappers(made, raw)
    return made


def _broken(made: Maker, given: dict[str, Any], it: bytes, raw: bytes) -> None:
    for about, signature in {
        "r is 0": bytes(32) + raw[32:],
        "s is 0": _form(raw, s=0),
        "r is the order": ORDER.to_bytes(32) + raw[32:],
        "s is the order": _form(raw, s=ORDER),
        "r and s are 2^256 - 1": b"\xff" * 64 + raw[64:],
        "v is 29": _form(raw, v=29),
        "v is 26": _form(raw, v=26),
        "65 zeros": bytes(65),
        "empty": b"",
        "1 byte": raw[:1],
        "32 bytes": raw[:32],
        "63 bytes": raw[:63],
        "1000 zeros": bytes(1000),
    }.items():
        try:
            recover(it, signature)
            raise AssertionError(about)
        except BadSignature:
            made.add(f"nobody-{slug_of(about)}", f"Recovers to nobody: {about}", "recover",
                     {**given, "signature": to_hex(signature)}, REFUSES,
                     texts.derived(texts.RECOVERS, texts.BYTES_65, so="no key makes such a signature"))  # fmt: skip
    for about, text in {"no hex": "0x" + "zz" * 65, "words": "signed by me"}.items():  # fmt: skip
        made.add(f"nobody-{slug_of(about)}", f"Recovers to nobody: {about}", "recover",
                 {**given, "signature": text}, REFUSES,
                 texts.derived(texts.BYTES_65, texts.INVALID_PAYLOAD, so="a text that is no bytes is no signature"))  # fmt: skip


def _open(made: Maker, given: dict[str, Any], raw: bytes) -> None:
    """Add forms that the token refuses, and that have a signer nevertheless."""
    low = int.from_bytes(raw[32:64])
    flipped = 55 - raw[64]
    why = "the signer may be found, or the form refused; a call of the token with this form reverts"
    for about, signature in {
        "high s": _form(raw, s=ORDER - low, v=flipped),
        "v of 0 or 1": _form(raw, v=raw[64] - 27),
        "high s and v of 0 or 1": _form(raw, s=ORDER - low, v=flipped - 27),
        "64 bytes of EIP-2098": raw[:32] + (low | ((raw[64] - 27) << 255)).to_bytes(32),
        "a chain id in v": _form(raw, v=raw[64] + 8),
        "v is 255": _form(raw, v=255),
        "a byte behind": raw + b"\0",
    }.items():
        made.add(f"form-{slug_of(about)}", f"A form that the token refuses: {about}", "recover",
                 {**given, "signature": to_hex(signature)}, None,
                 texts.silent(texts.BYTES_65, texts.RECOVERS, why=why))  # fmt: skip
    made.add("form-an-odd-number-of-digits", "A form that the token refuses: an odd number of digits",
             "recover", {**given, "signature": to_hex(raw)[:-1]}, None, texts.silent(texts.BYTES_65, why=why))  # fmt: skip


def _wrappers(made: Maker, raw: bytes) -> None:
    for call, inner in itertools.product((b"", secret("call")[:4], secret("call") * 5), (raw, raw[:64], raw * 3)):  # fmt: skip
        factory = key("factory").address
        tail = words(len(inner)) + inner.ljust(-(-len(inner) // 32) * 32, b"\0")
        middle = words(len(call)) + call.ljust(-(-len(call) // 32) * 32, b"\0")
        wrapped = words(factory, 96, 96 + len(middle)) + middle + tail + UNDEPLOYED
        assert unwrapped(wrapped) == inner
        made.add(f"unwrap-{len(call)}-{len(inner)}", f"A wrapper: a call of {len(call)} bytes, a signature of {len(inner)}",
                 "unwrap", {"signature": to_hex(wrapped)},
                 {"factory": checksum(factory), "call": to_hex(call), "signature": to_hex(inner)},
                 texts.explicit(texts.WRAPPER, texts.MAGIC_BYTES))  # fmt: skip
    for about, signature in {"a key's signature": raw, "empty": b"", "the magic in the middle": UNDEPLOYED + raw, "31 magic bytes": raw + UNDEPLOYED[1:]}.items():  # fmt: skip
        if about == "31 magic bytes":
            signature = raw[:32] + b"\0" + UNDEPLOYED[1:]
        assert unwrapped(signature) == signature
        made.add(f"unwrap-no-{slug_of(about)}", f"No wrapper: {about}", "unwrap",
                 {"signature": to_hex(signature)},
                 {"factory": None, "call": None, "signature": to_hex(signature)},
                 texts.explicit(texts.MAGIC_BYTES))  # fmt: skip
    why = "no text says what magic bytes behind something else are"
    for about, front in {
        "nothing": b"",
        "a key's signature": raw,
        "an end beyond the text": words(1, 96, 2**64),
    }.items():
        made.add(f"unwrap-magic-behind-{slug_of(about)}", f"The magic bytes behind {about}", "unwrap",
                 {"signature": to_hex(front + UNDEPLOYED)}, None, texts.silent(texts.MAGIC_BYTES, why=why))  # fmt: skip
