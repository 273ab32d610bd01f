"""Alice signs windows that open or close exactly now, or a second before or after. The facilitator
finds an authorization with validAfter equal to now valid, but the token refuses it. Then payers
with wrong clocks pay: up to one minute ahead and five minutes behind it works. Beyond that the
error names the time that does not fit, and no money moves.
"""

from x402sim import LiveWorld, scenario

NOT_YET, EXPIRED = "Authorization not yet valid", "Authorization expired"
CLOCKS = {
    600: NOT_YET,
    62: NOT_YET,
    58: None,
    30: None,
    -30: None,
    -298: None,
    -302: EXPIRED,
    -600: EXPIRED,
}


@scenario(
    title="Clock skew: both edges of the window are exclusive, and a wrong clock costs no money",
    covers="2.3/window, 5/window, 7/authorization-expired, 7/invalid-signature",
    needs="clock, funds, observe chain",
)
async def clock_skew(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    asked = [await alice.ask() for _ in range(4)]
    # Within one second, which begins now: the edges are whole seconds.
    await world.clock.sleep_until(int(world.clock.now()) + 1.05)
    now_s = alice.now_s()
    opening = alice.sign(asked[0], valid_after=now_s)
    verdict = await world.ask_facilitator("verify", alice, asked[0], opening)
    world.expect(verdict["isValid"], True, "4.1/verify-signature")
    opens_now = await alice.pay(asked[0], opening)
    world.expect(opens_now, "Invalid signature", "7/invalid-signature")
    world.expect(opens_now.reason.split(";")[0], NOT_YET, "5/window")
    world.expect("this header is valid from" in opens_now.reason, True, "5/window")
    still_open = await alice.pay(asked[1], alice.sign(asked[1], valid_before=now_s + 1))
    world.expect(still_open, 200, "5/window")
    # From here on, the second may pass.
    closes_now = await alice.pay(asked[2], alice.sign(asked[2], valid_before=now_s))
    world.expect(closes_now, EXPIRED, "7/authorization-expired")
    open_since = await alice.pay(asked[3], alice.sign(asked[3], valid_after=now_s - 1))
    world.expect(open_since, 200, "5/window")
    world.expect(len(await world.transfers(alice)), 2, "5/window")

    for skew_s, refusal in CLOCKS.items():
        payer = await world.payer(f"payer {skew_s:+} s", balance="1.00")
        payer.skew_s = skew_s
        answer = await payer.buy()
        said = answer.reason.split(";")[0] if answer.error == "Invalid signature" else answer.error
        world.expect(f"{skew_s:+} s: {said}", f"{skew_s:+} s: {refusal}", "2.3/window")
        paid = len(await world.transfers(payer))
        world.expect(paid, 1 if refusal is None else 0, "5/window")
