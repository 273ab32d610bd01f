"""Reputations: what the rules say, and that the database's counts are right and cost nothing."""

import random

import pytest

from tests.service.test_store import insert_settled, steps
from x402sim.policies import MatchedPayments
from x402sim.protocol.states import PaymentState
from x402sim.service.store import Store


def settled(store: Store, resource: str = "/a") -> tuple[int, str]:
    """Store a settled payment; return its attempt and its id."""
    number = store.counts()["payments"] + 1
    insert_settled(store, number, resource)
    return number, f"pay_{number}"


def tracks(store: Store) -> dict[str, tuple[int, int]]:
    sql = (
        "SELECT resource_url, count(*), sum(payment_id IN (SELECT payment_id FROM served)) "
        "FROM payments WHERE status = 'settled' AND block_number IS NOT NULL GROUP BY resource_url"
    )
    return {url: (matched, served) for url, matched, served in store.execute(sql)}


def kept(store: Store) -> dict[str, tuple[int, int]]:
    """Return what the database has counted."""
    sql = "SELECT resource_url, payments, served FROM matched WHERE payments > 0"
    return {url: (matched, served) for url, matched, served in store.execute(sql)}


@pytest.mark.parametrize("seed", range(5))
def test_the_counts_follow_every_move_of_a_payment(seed: int) -> None:
    rng, store = random.Random(seed), Store()
    payments = [settled(store, rng.choice(("/a", "/b"))) for _ in range(6)]
    for _ in range(300):
        attempt, payment_id = rng.choice(payments)
        stored = store.payments.attempt(attempt)
        assert stored is not None
        match rng.randrange(5):
            case 0 if stored.state is PaymentState.SETTLED:
                store.payments.set_block(attempt, "0x1", 5, is_deep=rng.random() < 0.5)
            case 1:
                store.served.mark(payment_id, stored.resource_url)
            case 2 if stored.state is PaymentState.SETTLED:
                store.payments.mark_reorged(attempt)
            case 3 if stored.is_pending:
                store.payments.mark_settled(attempt, "0x2", None)
            case 4 if stored.state is not PaymentState.FAILED and rng.random() < 0.1:
                store.payments.fail(attempt, 1)
            case _:
                continue
        assert kept(store) == tracks(store)
    store.clear()
    assert kept(store) == tracks(store) == {}
    store.close()


def test_an_update_costs_the_same_however_many_payments_there_are() -> None:
    def matched(payments: int) -> Store:
        store = Store()
        for _ in range(payments):
            store.payments.set_block(settled(store)[0], "0x1", 5)
        return store

    def update(store: Store) -> bool:
        store.payments.update_reputation(MatchedPayments())
        return True

    assert steps(matched(400), update) == steps(matched(4), update)
