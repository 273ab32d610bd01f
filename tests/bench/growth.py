"""`python -m tests.bench.growth FILE.svg`: what a payment and the lookups cost as a run grows, drawn.

A payment in one world, by the payments before it; the others by the records or blocks that are stored.
The curves shall be flat. What they are is CPU time, so that other programs change little.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import process_time

from tests.bench import crowd
from tests.chain.helpers import OWNER, TOKEN, LedgerDriver, nonce
from x402sim.chain.base import Call, LogFilter
from x402sim.protocol import abi
from x402sim.rng import Stream
from x402sim.service.issue import QUOTE
from x402sim.service.settings import MatchedPayments
from x402sim.service.store import Store
from x402sim.world.story.payer import Payer

Curve = list[tuple[int, float]]
"""How much there is, and the microseconds that one takes."""
TIMES = 200
UNINDEXED = 100
"""A batch of the indexer."""
_FILL = f"""
INSERT INTO payments(payment_id, tx_hash, from_address, to_address, amount, resource_url, status,
    block_number, timestamp, header, payer, nonce, duration, can_pay, seen_unused, is_deep)
WITH RECURSIVE each(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM each WHERE n < ?)
SELECT printf('pay_%x', n * 7919 % 15485863), printf('0x%064x', n), 'payer', 'shop', '10000',
    '{QUOTE}', 'settled', CASE WHEN n > {UNINDEXED} THEN n END, n, 'header', zeroblob(20),
    randomblob(32), 0, 1, 0, n > {UNINDEXED} FROM each"""


def powers(most: int) -> list[int]:
    """Return the powers of ten from 100 to the most."""
    return [10**n for n in range(2, len(str(most)))]


def timed(act: Callable[[int], object]) -> float:
    """Return the microseconds that an act takes, done with each of some numbers."""
    before = process_time()
    for number in range(TIMES):
        act(number)
    return (process_time() - before) / TIMES * 1e6


def stored(most: int) -> Iterator[tuple[str, int, float]]:
    """Yield what each lookup costs, by the payments that are stored."""
    for count in powers(most):
        with closing(Store()) as store:
            store.execute(_FILL, count)
            for name, act in _lookups(store, count).items():
                yield name, count, timed(act)


def _lookups(store: Store, count: int) -> dict[str, Callable[[int], object]]:
    def entitled(number: int) -> None:
        stored = number * 104729 % count + 1
        assert store.payments.grants(f"pay_{stored * 7919 % 15485863:x}", QUOTE)

    return {
        "entitlement": entitled,
        "indexer's batch": lambda _: store.payments.unindexed(UNINDEXED)[UNINDEXED - 1],
        "backlog": lambda _: store.payments.backlog(),
        "reputation": lambda _: store.payments.update_reputation(MatchedPayments()),
    }


def logged(most: int) -> Iterator[tuple[str, int, float]]:
    """Yield what finding one log costs, by the blocks since the first."""
    driver = LedgerDriver()
    machine = driver.ledger.machine
    wanted = LogFilter(0, 2**63, (TOKEN,), ((), (), (abi.word(nonce(7)[:20]),)))
    for number in range(most):
        machine.send(
            int(driver.now[0]), Call(OWNER.address_bytes, TOKEN, abi.mint(nonce(number)[:20], 5))
        )
        if number + 1 in powers(most):
            yield "logs", number + 1, timed(lambda _: machine.logs(wanted)[0])
    driver.ledger.close()


def paid(count: int) -> Iterator[tuple[str, int, float]]:
    """Yield what a payment costs in each tenth of a world."""
    marks = [(0, 0.0)]

    async def visit(payer: Payer, rng: Stream) -> None:
        await crowd.BUY(payer, rng)
        done = marks[-1][0] + 1
        marks.append((done, process_time()))

    crowd.play(100, count, visit)
    for tenth in range(1, 10):
        first, last = marks[count * tenth // 10], marks[count * (tenth + 1) // 10]
        yield "a payment", last[0], (last[1] - first[1]) / (last[0] - first[0]) * 1e6


def draw(found: dict[str, Curve], file: Path) -> None:
    """Draw each curve, with both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, curve in found.items():
        axes.loglog(*zip(*curve, strict=True), marker="o", label=name)
    axes.set(xlabel="payments, records or blocks so far", ylabel="CPU of one, µs")
    axes.legend()
    figure.savefig(file)


def main(arguments: list[str]) -> dict[str, Curve]:
    """Measure, print each point, draw them, and return them."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--payments", type=int, default=10**5)
    parser.add_argument("--records", type=int, default=10**6)
    parser.add_argument("--blocks", type=int, default=10**5)
    given = parser.parse_args(arguments)
    found: dict[str, Curve] = {}
    for part in (stored(given.records), logged(given.blocks), paid(given.payments)):
        for name, count, cost_us in part:
            found.setdefault(name, []).append((count, cost_us))
            print(f"{name:16}{count:>10,}{cost_us:>10,.1f} µs", flush=True)
    draw(found, given.file)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
