"""Scenarios of a user, which the tests write to files and play."""

from pathlib import Path

_HEAD = '''"""Alice buys a quote."""

import asyncio

from x402sim import Fault, LiveWorld, scenario


@scenario(title="{title}", covers="4.1/receipt, 5/nonce-once", needs="{needs}")
async def {name}(world: LiveWorld) -> None:
'''

HOLDS = """
    alice = await world.payer("alice", balance="1.00")
    paid = await alice.buy()
    world.expect(paid.status, 200, "4.1/receipt")
    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")
"""
FAILS = """
    alice = await world.payer("alice", balance="1.00")
    first = await alice.ask()
    await world.fault(Fault(victim="facilitator", does="lose answer", path="settle"))
    paid = await alice.pay(first)
    world.expect(paid.status, 200, "4.1/receipt")
    world.expect(len(await world.transfers(alice)), 2, "5/nonce-once")
    world.expect(await world.earned(), 20000, "5/nonce-once")
"""
RAISES = """
    alice = await world.payer("alice", balance="1.00")
    paid = await alice.buy()
    world.expect(paid.status, 200, "4.1/receipt")
    raise KeyError("the scenario raised this")
"""
NEVER_ENDS = """
    print("begun", flush=True)
    while True:
        await world.advance(3600)
"""


def write(folder: Path, body: str, name: str = "mine", needs: str = "funds, control chain") -> str:
    """Write a scenario into a file; return its path."""
    file = folder / f"{name}.py"
    file.write_text(_HEAD.format(title=f"{name}: of my own", name=name, needs=needs) + body)
    return str(file)
