"""Blocks do not come, and the facilitator waits a second before it answers. Two payments of Alice
are settled as the x402 standard says, of version 1 and of version 2: both are pending, with the
hash of the transaction that was sent and the network. Asked again, nothing is sent twice. A block
comes: asked once more, the same transaction is told as a success, and after that the authorization
is used.
"""

from x402sim import LiveWorld, scenario

USED = {1: "invalid_transaction_state", 2: "invalid_exact_evm_nonce_already_used"}


@scenario(
    title=(
        "Pending settlement: what is sent and not mined is pending, and settled when it is asked "
        "again"
    ),
    covers="4.1/settle-on-chain, 5/nonce-once",
    needs="funds, faults, control chain, observe chain",
)
async def pending_settlement(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    await world.set_facilitator(receipt_timeout_s=1)
    for settled, version in enumerate((1, 2)):
        required = await alice.ask()
        header = alice.sign(required)
        await world.mining(automine=False)
        for _ in range(2):
            pending = await world.ask_facilitator(
                "settle", alice, required, header, version=version
            )
            world.expect(pending["success"], False, "4.1/settle-on-chain")
            world.expect(pending["errorReason"], "settlement_pending", "4.1/settle-on-chain")
            world.expect(len(await world.transfers(alice)), settled, "4.1/settle-on-chain")

        await world.mine()
        mined = await world.ask_facilitator("settle", alice, required, header, version=version)
        world.expect(mined["success"], True, "4.1/settle-on-chain")
        for field in ("transaction", "network", "payer"):
            world.expect(mined[field], pending[field], "4.1/settle-on-chain")
        paid = (await world.transfers(alice))[-1]
        world.expect(paid.tx_hash, mined["transaction"], "4.1/settle-on-chain")

        used = await world.ask_facilitator("settle", alice, required, header, version=version)
        world.expect(used["errorReason"], USED[version], "5/nonce-once")
        await world.mining(automine=True)
    world.expect(len(await world.transfers(alice)), 2, "5/nonce-once")
    await world.heal()
