"""Alice asks for sessions of amounts that floating point gets wrong, and of the largest amount that
can be stored; each 402 asks for exactly that amount. A negative amount, zero, an amount larger than
any balance, or another spelling is refused before a price is quoted.
"""

from x402sim import LiveWorld, scenario

EXACT = {
    "0.01": "10000",
    "0.07": "70000",
    "0.29": "290000",
    "1.10": "1100000",
    "4.35": "4350000",
    "1000000.00": "1000000000000",
    "9007199254.74": "9007199254740000",
    "90071992547.41": "90071992547410000",
}
REFUSED = (
    *("1", "1.", "1.0", "1.000", ".50", "01.00", "1,00", "1e2", "1e-7", "0x1.00", "1_0.00"),
    *("+1.00", "-1.00", "0.00", " 1.00", "1.00 ", "NaN", "Infinity", "", "\u0661.00"),
    "99999999999999999999.00",
)


@scenario(
    title="Deposit amounts: a 402 asks for maxSpend exactly, without rounding",
    covers="4.4/deposit-402, 4.4/max-spend",
)
async def deposit_amounts(world: LiveWorld) -> None:
    alice = await world.payer("alice")
    for deposit, base_units in EXACT.items():
        required = await alice.ask_session(deposit, 60)
        world.expect(required, 402, "4.4/deposit-402")
        wanted = required.requirements["maxAmountRequired"]
        world.expect(f"{deposit} is {wanted}", f"{deposit} is {base_units}", "4.4/max-spend")
    for deposit in REFUSED:
        refused = await alice.ask_session(deposit, 60)
        said = f"{deposit!r}: {refused.status}"
        world.expect(said, f"{deposit!r}: 400", "4.4/max-spend")
