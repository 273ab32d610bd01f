"""The family of Permit2: domains, structs, digests, signatures and signers, for `exact` and `upto`;
and EIP-2612 permits, by which a payer approves Permit2 without gas.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from tests.suite_vectors.making import Maker, key, secret, slug_of
from tests.suite_vectors.typed_data import START_S, domain_in
from x402sim.protocol.crypto import ZERO_ADDRESS, checksum, keccak256, recover, sign, to_hex, words
from x402sim.protocol.eip3009 import PERMIT_TYPEHASH, Permit, digest
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.networks import BASE_SEPOLIA, NETWORKS
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    PERMISSIONS_TYPEHASH,
    PERMIT2,
    UPTO_PROXY,
    Permit2Authorization,
    permit2_digest,
    separator,
    witness_hash,
)
from x402sim.suite import texts

TRANSFER, WITNESS, PERMISSIONS = "PermitWitnessTransferFrom", "Witness", "TokenPermissions"
WITNESSES = {"exact": texts.EXACT_WITNESS, "upto": texts.UPTO_WITNESS}
CHAIN = BASE_SEPOLIA.chain_id


def domain(chain_id: int) -> dict[str, Any]:
    """Return Permit2's domain as vectors have it: no version."""
    return {"name": "Permit2", "chainId": str(chain_id), "verifyingContract": checksum(PERMIT2)}


def witness_in(auth: Permit2Authorization) -> dict[str, Any]:
    """Return the witness of an authorization as vectors have it."""
    who = {} if auth.facilitator is None else {"facilitator": checksum(auth.facilitator)}
    return {"to": checksum(auth.to), **who, "validAfter": str(auth.valid_after)}


def message_in(auth: Permit2Authorization) -> dict[str, Any]:
    """Return an authorization as vectors have it."""
    return {
        "permitted": {"token": checksum(auth.token), "amount": str(auth.amount)},
        "spender": checksum(auth.spender),
        "nonce": str(auth.nonce),
        "deadline": str(auth.deadline),
        "witness": witness_in(auth),
    }


def authorizations(scheme: str) -> Iterator[tuple[str, Permit2Authorization]]:
    """Yield authorizations of a scheme, usual and at the ends of what fits."""
    for about, changes in {
        "usual 1": {"amount": 10_000},
        "usual 2": {"amount": 5_000_000},
        "nothing": {"amount": 0},
        "more than 2^53": {"amount": 2**53 + 1},
        "the greatest amount": {"amount": MAX_UINT256},
        "nonce 0": {"nonce": 0},
        "the last bit of a word": {"nonce": 255},
        "the first bit of the next word": {"nonce": 256},
        "the greatest nonce": {"nonce": MAX_UINT256},
        "an endless deadline": {"deadline": MAX_UINT256},
        "valid from 0": {"valid_after": 0},
        "to the zero address": {"to": ZERO_ADDRESS},
    }.items():
        name = f"{scheme} {about}"
        usual = Permit2Authorization(
            from_=key(f"payer {name}").address,
            token=BASE_SEPOLIA.asset,
            amount=10_000,
            spender=UPTO_PROXY if scheme == "upto" else EXACT_PROXY,
            nonce=int.from_bytes(secret(f"nonce {name}")),
            deadline=START_S + 60,
            to=key(f"payee {name}").address,
            valid_after=START_S,
            facilitator=key(f"facilitator {name}").address if scheme == "upto" else None,
        )
        yield about, msgspec.structs.replace(usual, **changes)


def permit2() -> Maker:
    """Make the vectors of the family."""
    made = Maker("permit2")
    for chain_id in sorted({network.chain_id for network in NETWORKS.values()} | {1, 2**53 + 1}):
        made.add(f"domain-{chain_id}", f"Permit2's domain on chain {chain_id}", "domain",
                 {"domain": domain(chain_id)}, {"hash": to_hex(separator(chain_id))},
                 texts.explicit(texts.SEPARATOR, texts.PERMIT2_DOMAIN))  # fmt: skip
    for scheme, sentence in WITNESSES.items():
        for about, auth in authorizations(scheme):
            _hashed(made, scheme, about, auth)
            given = {"domain": domain(CHAIN), "type": TRANSFER, "message": message_in(auth)}
            _signed(made, f"{scheme}-{slug_of(about)}", f"{scheme}, {about}", given,
                    permit2_digest(auth, CHAIN), key(f"payer {scheme} {about}"), sentence)  # fmt: skip
        _others(made, scheme)
    for about, permit in permits():
        _permit(made, about, permit)
    return made


def _hashed(made: Maker, scheme: str, about: str, auth: Permit2Authorization) -> None:
    name, said = f"{scheme}-{slug_of(about)}", f"{scheme}, {about}"
    if about in ("usual 1", "valid from 0", "to the zero address"):
        made.add(f"struct-witness-{name}", f"The witness: {said}", "struct",
                 {"type": WITNESS, "message": witness_in(auth)}, {"hash": to_hex(witness_hash(auth))},
                 texts.explicit(texts.HASH_STRUCT, WITNESSES[scheme]))  # fmt: skip
    if scheme == "exact" and auth.amount != 10_000:
        permitted = message_in(auth)["permitted"]
        hashed = keccak256(PERMISSIONS_TYPEHASH + words(auth.token, auth.amount))
        made.add(f"struct-permissions-{slug_of(about)}", f"The permitted amount: {about}", "struct",
                 {"type": PERMISSIONS, "message": permitted}, {"hash": to_hex(hashed)},
                 texts.explicit(texts.HASH_STRUCT, texts.PERMIT2_TYPE))  # fmt: skip


def _signed(made: Maker, name: str, about: str, given: dict[str, Any], digest_of: bytes, payer: Any, sentence: Any) -> None:  # fmt: skip
    signature = sign(digest_of, payer)
    made.add(f"digest-{name}", f"The digest: {about}", "digest", given, {"hash": to_hex(digest_of)},
             texts.explicit(texts.ENCODE, sentence))  # fmt: skip
    made.add(f"sign-{name}", f"The payer's signature: {about}", "sign",
             {**given, "privateKey": to_hex(payer.secret)},
             {"digest": to_hex(digest_of), "signer": checksum(payer.address), "signature": to_hex(signature)},
             texts.explicit(texts.ENCODE, sentence))  # fmt: skip
    made.add(f"recover-{name}", f"The signer: {about}", "recover",
             {**given, "signature": to_hex(signature)}, {"address": checksum(payer.address)},
             texts.explicit(texts.ENCODE, sentence))  # fmt: skip


def _others(made: Maker, scheme: str) -> None:
    """Add one message more for each field, with the signature of the first."""
    _, auth = next(authorizations(scheme))
    signature = sign(permit2_digest(auth, CHAIN), key(f"payer {scheme} usual 1"))
    for field in Permit2Authorization.__struct_fields__:
        value = getattr(auth, field)
        if field == "from_" or value is None:  # the payer is recovered, not signed
            continue
        other = value + 1 if isinstance(value, int) else key("thief").address
        changed = msgspec.structs.replace(auth, **{field: other})
        signer = recover(permit2_digest(changed, CHAIN), signature)
        made.add(f"recover-other-{scheme}-{slug_of(field)}",
                 f"Another {field.replace('_', ' ')} recovers another signer: {scheme}", "recover",
                 {"domain": domain(CHAIN), "type": TRANSFER, "message": message_in(changed), "signature": to_hex(signature)},
                 {"address": checksum(signer)}, texts.explicit(texts.ENCODE, WITNESSES[scheme]))  # fmt: skip


def permits() -> Iterator[tuple[str, Permit]]:
    """Yield EIP-2612 permits for Permit2, usual and at the ends of what fits."""
    for about, changes in {
        "usual": {},
        "a second permit": {"nonce": 1},
        "without limit": {"value": MAX_UINT256},
        "for nothing": {"value": 0},
        "an endless deadline": {"deadline": MAX_UINT256},
    }.items():
        usual = Permit(key(f"owner {about}").address, PERMIT2, 10_000, 0, START_S + 60)
        yield about, msgspec.structs.replace(usual, **changes)


def _permit(made: Maker, about: str, permit: Permit) -> None:
    fields = msgspec.structs.astuple(permit)
    message = {
        "owner": checksum(permit.owner),
        "spender": checksum(permit.spender),
        **{name: str(getattr(permit, name)) for name in ("value", "nonce", "deadline")},
    }
    made.add(f"struct-permit-{slug_of(about)}", f"The struct of Permit: {about}", "struct",
             {"type": "Permit", "message": message}, {"hash": to_hex(keccak256(PERMIT_TYPEHASH + words(*fields)))},
             texts.explicit(texts.HASH_STRUCT, texts.PERMIT_TYPE))  # fmt: skip
    token = BASE_SEPOLIA.domain
    given = {"domain": domain_in(token), "type": "Permit", "message": message}
    _signed(made, f"permit-{slug_of(about)}", f"Permit, {about}", given,
            digest(token, PERMIT_TYPEHASH, *fields), key(f"owner {about}"), texts.PERMIT_TYPE)  # fmt: skip
