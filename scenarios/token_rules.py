"""Alice owes Bob and signs authorizations that he submits to the chain, without service and
facilitator: transfers for anyone to submit, and transfers for the payee only. In the second of
validAfter it is too early, in the second of validBefore too late. The token refuses while paused,
for a blacklisted account, for a foreign signature, for a used or cancelled nonce. A refusal changes
no state: the same authorization is accepted once the reason is gone.
"""

from functools import partial
from typing import Any

from x402sim import LiveWorld, scenario

PAUSED, BLACKLISTED = "Pausable: paused", "Blacklistable: account is blacklisted"
EARLY = "FiatTokenV2: authorization is not yet valid"
LATE = "FiatTokenV2: authorization is expired"
USED = "FiatTokenV2: authorization is used or canceled"
UNSIGNED = "FiatTokenV2: invalid signature"
STRANGER = "FiatTokenV2: caller must be the payee"


@scenario(
    title="Token rules: every reason for which the token refuses an authorization",
    covers="5/window, 5/nonce-once, 5/signature-proves",
    needs="funds, clock, control chain, fiat token",
)
async def token_rules(world: LiveWorld) -> None:
    alice, bob = await world.payer("alice", balance="1.00"), await world.payer("bob")
    mallory, owed = await world.payer("mallory"), await alice.ask()

    def expect(sent: Any, revert_reason: str | None, clause: str) -> None:
        world.expect(sent.revert_reason, revert_reason, clause)

    for receive in (False, True):
        opens = alice.now_s() + 60
        closes = opens + 60
        to_bob = partial(alice.sign, owed, receive=receive, to=bob.address)
        sign = partial(to_bob, valid_after=opens, valid_before=closes)
        submit = partial(bob.submit, receive=receive)
        header, cancelled, last, late = (sign() for _ in range(4))

        await world.advance(until_s=opens)
        expect(await submit(header), EARLY, "5/window")
        await world.advance(until_s=opens + 1)
        async with world.paused():
            expect(await submit(header), PAUSED, "token/not-paused")
            expect(await alice.cancel(header), PAUSED, "token/not-paused")
        async with world.blacklisted(bob.address):
            expect(await submit(header), BLACKLISTED, "token/payee-not-blacklisted")
        async with world.blacklisted(alice.address):
            expect(await submit(header), BLACKLISTED, "token/payer-not-blacklisted")
            expect(await alice.cancel(cancelled), None, "5/nonce-once")
        if receive:
            expect(await mallory.submit(header, receive=True), STRANGER, "token/payee-calls")
        expect(await bob.submit(header, receive=not receive), UNSIGNED, "5/signature-proves")
        expect(await submit(sign(by=mallory.wallet)), UNSIGNED, "5/signature-proves")
        expect(await alice.cancel(header, by=mallory.wallet), UNSIGNED, "5/signature-proves")

        expect(await submit(header), None, "5/window")
        expect(await submit(header), USED, "5/nonce-once")
        expect(await submit(cancelled), USED, "5/nonce-once")
        expect(await alice.cancel(header), USED, "5/nonce-once")
        await world.advance(until_s=closes - 1)
        expect(await submit(last), None, "5/window")
        await world.advance(until_s=closes)
        expect(await submit(late), LATE, "5/window")

    paid = [int(each.amount_base) for each in await world.transfers(alice)]
    world.expect(paid, [owed.price_base] * 4, "5/nonce-once")
