"""RLP, the encoding of Ethereum's transactions: byte strings, and lists of them.

Decoding is strict, as in nodes: one item, written in the only valid way, with nothing after it.

The package rlp decodes the same, but lists of any depth: 128 KiB of nested lists, which anybody may
send, took 116 MB. It also takes half a second to import. `tests/chain/test_raw_transaction.py`
compares both.
"""

from typing import TypeAlias

Item: TypeAlias = "bytes | list[Item]"
MAX_DEPTH = 4
"""A transaction's access list is a list of pairs with a list of slots: four lists deep."""


def encode(item: Item) -> bytes:
    """Return the encoding of a byte string, or of a list of items."""
    if isinstance(item, bytes):
        return item if len(item) == 1 and item[0] < 0x80 else _prefix(0x80, len(item)) + item
    body = b"".join(map(encode, item))
    return _prefix(0xC0, len(body)) + body


def decode(data: bytes) -> Item:
    """Return the one item that `data` holds; raises `ValueError` in the words of geth."""
    item, end = _read(data, 0, len(data), MAX_DEPTH)
    if end != len(data):
        raise ValueError("rlp: input contains more than one value")
    return item


def number(value: int) -> bytes:
    """Return an integer from 0 as a byte string, big-endian without leading zeros."""
    return value.to_bytes((value.bit_length() + 7) // 8)


def _prefix(kind: int, size: int) -> bytes:
    if size < 56:
        return bytes([kind + size])
    digits = number(size)
    return bytes([kind + 55 + len(digits)]) + digits


def _read(data: bytes, at: int, end: int, depth: int) -> tuple[Item, int]:
    """Return the item at a position, and the position after it."""
    start, size, is_list = _bounds(data, at, end)
    stop = start + size
    if stop > end:
        raise ValueError("rlp: value size exceeds available input length")
    if not is_list:
        if size == 1 and start > at and data[start] < 0x80:
            raise ValueError("rlp: non-canonical size information")
        return data[start:stop], stop
    if not depth:
        raise ValueError("rlp: lists are nested too deeply")
    items = []
    while start < stop:
        item, start = _read(data, start, stop, depth - 1)
        items.append(item)
    return items, stop


def _bounds(data: bytes, at: int, end: int) -> tuple[int, int, bool]:
    """Return where an item's content begins, its size, and whether it is a list."""
    if at >= end:
        raise ValueError("rlp: unexpected end of input")
    first = data[at]
    if first < 0x80:
        return at, 1, False
    kind = 0xC0 if first >= 0xC0 else 0x80
    size = first - kind
    if size < 56:
        return at + 1, size, kind == 0xC0
    start = at + 1 + size - 55
    digits = data[at + 1 : min(start, end)]
    if len(digits) < size - 55:
        raise ValueError("rlp: unexpected end of input")
    if digits[0] == 0 or int.from_bytes(digits) < 56:
        raise ValueError("rlp: non-canonical size information")
    return start, int.from_bytes(digits), kind == 0xC0
