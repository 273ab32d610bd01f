"""Alice's wallet is set to another network, and its header is refused. She relabels a valid header
for another network, token or scheme, and then changes the requirements to agree with it. She also
labels a header correctly but signs it for another name, version, chain or contract of the token.
All of these are refused and no money moves; the header that is signed and labelled correctly is
accepted.
"""

from dataclasses import replace
from typing import Any

from x402sim import BASE_SEPOLIA, MAINNET, TESTNET, LiveWorld, scenario


@scenario(
    title="Foreign header: a header for another network, token or scheme is refused",
    covers=(
        "2.1/scheme, 2.1/network, 2.1/asset, 5/signature-proves, 7/invalid-signature, "
        "5/stored-records"
    ),
    needs="funds, observe chain",
)
async def foreign_header(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask()
    asset, here = required.requirements["asset"], world.network
    there = TESTNET if here.name == MAINNET.name else MAINNET
    if world.stage.funded:  # the user's own key signs for no other main network
        there = BASE_SEPOLIA if here.name == TESTNET.name else TESTNET

    misplaced = await alice.pay(required, alice.sign(required, network=there))
    world.expect(misplaced, "Invalid signature", "7/invalid-signature")
    world.expect(
        misplaced.reason.split(";")[0], f"Unsupported network: {there.name}", "2.1/network"
    )

    good = alice.sign(required)
    foreign = "0x" + there.asset.hex()
    labels: dict[str, Any] = {"network": there.name, "asset": foreign, "scheme": "upto"}
    for label, value in labels.items():
        header = alice.rewrite_header(good, **{label: value})
        relabelled = await alice.pay(required, header)
        world.expect(relabelled, "Invalid signature", "7/invalid-signature")
        world.expect(
            relabelled.reason.split(";")[0], f"Unsupported {label}: {value}", f"2.1/{label}"
        )
        matching = await alice.pay(required, header, requirements={label: value})
        world.expect(matching, "Payment requirements do not match", f"2.1/{label}")
        world.expect(matching.reason.split(":")[0], label, f"2.1/{label}")

    for token in (
        replace(here, token_name="Another"),  # noqa: S106 - a name, no password
        replace(here, token_version="0"),  # noqa: S106
        replace(here, chain_id=there.chain_id),
        replace(here, asset=there.asset),
    ):
        header = alice.rewrite_header(alice.sign(required, network=token), asset=asset)
        mislabelled = await alice.pay(required, header)
        world.expect(mislabelled, "Invalid signature", "7/invalid-signature")
        why = "Invalid EIP-3009 signature"
        world.expect(mislabelled.reason.split(";")[0], why, "5/signature-proves")

    world.expect(await alice.ask(payment_id=required.payment_id), 402, "5/stored-records")
    world.expect(len(await world.transfers(alice)), 0, "5/signature-proves")
    world.expect(await alice.pay(required, good), 200, "5/signature-proves")
    world.expect(await world.earned(), required.price_base, "5/signature-proves")
