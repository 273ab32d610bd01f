"""The judges read which authorization has made which transfer."""

import asyncio

from x402sim.chain.base import Log, LogFilter
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash, to_hex
from x402sim.suite.money import transfers

TOKEN, OTHER, SHOP = Address(b"t" * 20), Address(b"o" * 20), Address(b"s" * 20)
ALICE, BOB = Address(b"a" * 20), Address(b"b" * 20)


def test_of_several_payments_in_one_transaction_each_has_its_own_nonce() -> None:
    """A facilitator may settle many payments by a contract that batches calls."""
    tx = Hash(b"h" * 32)

    def log(event: bytes, *indexed: bytes, token: Address = TOKEN) -> Log:
        topics = (event, *(each.rjust(32, b"\0") for each in indexed))
        return Log(token, topics, abi.word(5), 1, tx, tx, 0, 0)

    class Chain:
        async def logs(self, wanted: LogFilter) -> list[Log]:
            return [
                each
                for payer, nonce in ((ALICE, b"1" * 32), (BOB, b"2" * 32), (ALICE, b"3" * 32))
                for each in (
                    log(abi.AUTHORIZATION_USED, payer, nonce),
                    log(abi.TRANSFER_EVENT, payer, SHOP, token=OTHER),
                    log(abi.TRANSFER_EVENT, payer, SHOP),
                )
            ]

    found = asyncio.run(transfers(Chain(), 0, TOKEN, OTHER))
    assert [(each.sender, each.nonce) for each in found if each.token == TOKEN] == [
        (ALICE, to_hex(b"1" * 32)), (BOB, to_hex(b"2" * 32)), (ALICE, to_hex(b"3" * 32)),
    ]  # fmt: skip
    assert {each.nonce for each in found if each.token == OTHER} == {""}


def test_events_of_other_contracts_with_the_same_name_are_passed_over() -> None:
    """Some tokens index nothing; of an NFT the number is indexed, too."""
    tx = Hash(b"h" * 32)

    class Chain:
        async def logs(self, wanted: LogFilter) -> list[Log]:
            events = [(each,) for each in (abi.AUTHORIZATION_USED, abi.TRANSFER_EVENT)]
            nft = (abi.TRANSFER_EVENT, *[b"\1" * 32] * 3)
            return [Log(TOKEN, topics, abi.word(5), 1, tx, tx, 0, 0) for topics in (*events, nft)]

    assert asyncio.run(transfers(Chain(), 0)) == []
