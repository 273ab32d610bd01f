"""A process that works on a ledger file and acknowledges each operation, until it is killed.

`python -m tests.chain.killed FILE` prints a line after each operation.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.chain.helpers import MALLORY, START_BASE, LedgerDriver, cancel_call, nonce, payment
from x402sim.chain.base import ChainError
from x402sim.chain.ledger.ledger import LedgerChain

OPERATIONS = 600


def operate(driver: LedgerDriver) -> Iterator[None]:
    """Do one operation after the other; yields after each. Some are refused."""
    for n in range(OPERATIONS):
        ledger = driver.ledger
        driver.now[0] += 0.75
        if n % 13 == 12:
            with suppress(ChainError):
                driver.put(payment(n), MALLORY, value=10**30)
        elif n % 11 == 10:
            asyncio.run(ledger.set_automine(n % 2 == 0))
        elif n % 7 == 6:
            asyncio.run(_go_back(ledger, n))
        elif n % 5 == 4:
            driver.put(cancel_call(nonce(n)))
        elif n % 3 == 2:
            asyncio.run(ledger.mine(2))
        else:
            driver.put(payment(n, value=START_BASE if n % 20 == 0 else 100))
        yield


async def _go_back(ledger: LedgerChain, n: int) -> None:
    """Take a snapshot, revert to one, or reorganise, in turn."""
    turn = n // 7 % 3
    with suppress(ChainError):
        if turn == 0:
            await ledger.snapshot()
        elif turn == 1:
            await ledger.reorg(2)
        else:
            await ledger.revert(max(ledger.machine._snapshots, default=0))


if __name__ == "__main__":
    for _ in operate(LedgerDriver(file=Path(sys.argv[1]))):
        print("done", flush=True)
