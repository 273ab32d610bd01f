"""Reads signed transactions and recovers their senders: types 0 (with EIP-155), 1 (EIP-2930),
2 (EIP-1559) and 4 (EIP-7702). Signs those of type 0.

Errors are as geth's, for libraries to recognise. eth-account reads less strictly, and takes half a
second to import, a wait for every world.
"""

import msgspec

from x402sim.protocol import rlp
from x402sim.protocol.crypto import (
    Address,
    BadSignature,
    Hash,
    PrivateKey,
    keccak256,
    recover,
    sign,
)
from x402sim.protocol.money import MAX_UINT256

LEGACY, ACCESS_LIST, DYNAMIC_FEE, SET_CODE = 0, 1, 2, 4
"""The types of transactions: with one gas price, the same with an access list, with a highest fee
and a tip, and the same with delegations of accounts.
"""
_LEGACY_FIELDS = 9
_FIELDS = {ACCESS_LIST: 11, DYNAMIC_FEE: 12, SET_CODE: 13}
_DELEGATION = b"\x05"  # the signed byte before the fields of an account's delegation (EIP-7702)
_MAX_UINT64 = 2**64 - 1


class BadTransaction(ValueError):
    """Bytes without a signed transaction of a known type; the text is geth's answer."""


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """An account's signed wish to use the code of another from now on (EIP-7702); of the zero
    address: its own none. On any chain if `chain_id` is 0.
    """

    chain_id: int
    account: Address
    """Whose code is used."""
    nonce: int
    v: int
    r: int
    s: int
    authority: Address | None
    """The signer; None, without an error, if the signature shows nobody."""


class SignedTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A signed transaction, with sender and hash; fees are wei per unit of gas.

    `to` is None for the creation of a contract. A transaction of type 0 or 1 bids one price, stored
    as both fees.
    """

    type: int
    chain_id: int
    nonce: int
    max_tip_wei: int
    max_fee_wei: int
    gas_limit: int
    to: Address | None
    value: int
    data: bytes
    access_list: tuple[tuple[Address, tuple[bytes, ...]], ...]
    v: int
    """27, 28 or the chain's of EIP-155 for type 0; 0 or 1 for the others."""
    r: int
    s: int
    sender: Address
    hash: Hash
    raw: bytes
    delegations: tuple[Delegation, ...] = ()

    def price_wei(self, base_fee_wei: int) -> int:
        """Return the price of a unit of gas in a block with this base fee."""
        return min(self.max_fee_wei, base_fee_wei + self.max_tip_wei)


def signed_legacy(
    key: PrivateKey,
    chain_id: int,
    *,
    nonce: int,
    price_wei: int,
    gas_limit: int,
    to: Address | None,
    value: int,
    data: bytes,
) -> bytes:
    """Return a transaction of type 0, signed as EIP-155 says; without `to` it creates a contract.

    eth-account does the same in 5 ms without coincurve, longer than a node takes to run it.
    """
    number = rlp.number
    fields: list[rlp.Item] = [number(nonce), number(price_wei), number(gas_limit), to or b""]
    fields += [number(value), data]
    signature = sign(keccak256(rlp.encode([*fields, number(chain_id), b"", b""])), key)
    v, r, s = signature[64] + 8 + 2 * chain_id, signature[:32], signature[32:64]
    return rlp.encode([*fields, number(v), *(part.lstrip(b"\0") for part in (r, s))])


def read(raw: bytes) -> SignedTransaction:
    """Return a signed transaction; raises `BadTransaction`."""
    if not raw:
        raise BadTransaction("typed transaction too short")
    try:
        if raw[0] >= 0xC0:
            return _legacy(raw, _fields(rlp.decode(raw), _LEGACY_FIELDS))
        if raw[0] in _FIELDS:
            return _typed(raw, _fields(rlp.decode(raw[1:]), _FIELDS[raw[0]]))
    except BadSignature:
        raise BadTransaction("invalid sender") from None
    except ValueError as wrong:
        raise BadTransaction(str(wrong)) from None
    raise BadTransaction("transaction type not supported")


def _fields(item: rlp.Item, count: int) -> list[rlp.Item]:
    if not isinstance(item, list):
        raise ValueError("rlp: expected input list for types.Transaction")
    if len(item) != count:
        few = "few" if len(item) < count else "many"
        raise ValueError(f"rlp: too {few} elements for types.Transaction")
    return item


def _legacy(raw: bytes, fields: list[rlp.Item]) -> SignedTransaction:
    v = _uint(fields[6])
    if v in (27, 28):
        raise ValueError("only replay-protected (EIP-155) transactions allowed over RPC")
    chain_id, parity = divmod(v - 35, 2)
    if chain_id < 0:
        raise ValueError("invalid transaction v, r, s values")
    message = rlp.encode([*fields[:6], rlp.number(chain_id), b"", b""])
    nonce, price, gas_limit, to, value, data, *signature = fields
    fields = [nonce, price, price, gas_limit, to, value, data, [], *signature]
    return _signed(raw, LEGACY, chain_id, fields, message, parity)


def _typed(raw: bytes, given: list[rlp.Item]) -> SignedTransaction:
    kind, message = raw[0], raw[:1] + rlp.encode(given[:-3])
    chain_id, *fields = given
    if kind == ACCESS_LIST:
        fields.insert(1, fields[1])  # the price is both fees
    signed = fields.pop(8) if kind == SET_CODE else []
    delegations = tuple(_delegation(_fields(item, 6)) for item in _list(signed))
    if kind == SET_CODE and not delegations:
        raise ValueError("set code tx must have at least one authorization tuple")
    if kind == SET_CODE and not fields[4]:
        raise ValueError("rlp: input string too short for common.Address")
    return _signed(raw, kind, _uint(chain_id), fields, message, _uint(fields[8]), delegations)


def _delegation(fields: list[rlp.Item]) -> Delegation:
    chain_id, nonce, v, r, s = (_uint(fields[n]) for n in (0, 2, 3, 4, 5))
    try:
        authority = _sender(_DELEGATION + rlp.encode(fields[:3]), v, r, s)
    except BadSignature:
        authority = None
    return Delegation(
        chain_id=chain_id,
        account=Address(_sized(fields[1], 20)),
        nonce=_uint(fields[2], _MAX_UINT64),
        v=v,
        r=r,
        s=s,
        authority=authority if nonce < _MAX_UINT64 else None,
    )


def _signed(
    raw: bytes,
    kind: int,
    chain_id: int,
    fields: list[rlp.Item],
    message: bytes,
    parity: int,
    delegations: tuple[Delegation, ...] = (),
) -> SignedTransaction:
    v, r, s = map(_uint, fields[8:])
    return SignedTransaction(
        type=kind,
        chain_id=chain_id,
        nonce=_uint(fields[0], _MAX_UINT64),
        max_tip_wei=_uint(fields[1]),
        max_fee_wei=_uint(fields[2]),
        gas_limit=_uint(fields[3], _MAX_UINT64),
        to=Address(_sized(fields[4], 20)) if fields[4] else None,
        value=_uint(fields[5]),
        data=_bytes(fields[6]),
        access_list=tuple(
            (Address(_sized(account, 20)), tuple(_sized(slot, 32) for slot in _list(slots)))
            for account, slots in (_fields(pair, 2) for pair in _list(fields[7]))
        ),
        v=v,
        r=r,
        s=s,
        sender=_sender(message, parity, r, s),
        hash=Hash(keccak256(raw)),
        raw=raw,
        delegations=delegations,
    )


def _sender(message: bytes, parity: int, r: int, s: int) -> Address:
    """Return who signed; raises `BadSignature`, also for the upper half of `s` (EIP-2)."""
    if parity not in (0, 1):
        raise BadSignature("invalid transaction v, r, s values")
    return recover(keccak256(message), r.to_bytes(32) + s.to_bytes(32) + bytes([27 + parity]))


def _bytes(item: rlp.Item) -> bytes:
    if isinstance(item, bytes):
        return item
    raise ValueError("rlp: expected input string or byte for types.Transaction")


def _uint(item: rlp.Item, most: int = MAX_UINT256) -> int:
    digits = _bytes(item)
    if digits[:1] == b"\0":
        raise ValueError("rlp: non-canonical integer (leading zero bytes)")
    value = int.from_bytes(digits)
    if value > most:
        raise ValueError("rlp: input string too long for an integer of types.Transaction")
    return value


def _sized(item: rlp.Item, size: int) -> bytes:
    value = _bytes(item)
    if len(value) != size:
        raise ValueError(f"rlp: expected {size} bytes for types.Transaction, got {len(value)}")
    return value


def _list(item: rlp.Item) -> list[rlp.Item]:
    if isinstance(item, list):
        return item
    raise ValueError("rlp: expected input list for types.Transaction")
