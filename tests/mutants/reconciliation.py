"""Defects after a lost answer: the money has moved, or it has not, and who finds out."""

from tests.mutants.change import edit, swap
from tests.mutants.mutant import Kind
from x402sim.service import payments, reconcile
from x402sim.service.upstream import Upstream

reconciliation = Kind("reconciliation")
UNKNOWN = "    except OutcomeUnknown as error:\n"
FORGET_IT = (
    "        service.store.release(payment_id)\n"
    "        raise SettlementRefused(Refusal.UNREACHABLE, str(error)) from error\n"
)

ROWS = (
    reconciliation(
        "lost-answer-is-a-failure",
        "3/pending-resolved",
        "A settlement whose answer is lost is forgotten: paid again, it is charged twice.",
        edit(payments.settle, UNKNOWN, UNKNOWN + FORGET_IT),
        needs="world",
    ),
    reconciliation(
        "lost-answer-is-a-success",
        "4.1/settle-on-chain",
        "A settlement whose answer is lost is granted, although no money may have moved.",
        edit(
            payments.settle,
            UNKNOWN,
            UNKNOWN + "        from hashlib import sha256\n"
            "        made_up = '0x' + sha256(payment_id.encode()).hexdigest()\n"
            "        grant(service, payment_id, made_up, '')\n"
            "        return\n",
        ),
        needs="world",
    ),
    reconciliation(
        "internal-error-is-a-failure",
        "3/pending-resolved",
        "A facilitator that answers 500 after it has settled is taken for one that has not.",
        edit(
            Upstream.settle,
            "        raise OutcomeUnknown(str(error)) from error",
            "        if 'answered 5' in str(error):\n"
            "            raise\n"
            "        raise OutcomeUnknown(str(error)) from error",
        ),
        edit(
            payments.settle,
            "    except Unavailable as error:\n",
            "    except Unavailable as error:\n" + FORGET_IT,
        ),
        needs="world",
    ),
    reconciliation(
        "pending-for-ever",
        "3/pending-resolved",
        "Nobody asks the chain: a payment whose answer was lost stays pending.",
        edit(reconcile.reconcile, "in service.store.pending()", "in []"),
        edit(
            payments.earlier_attempt,
            "await look_up(service, stored)",
            "'unknown'",
            'return "pending"',
            "raise SettlementRefused(Refusal.PENDING)",
        ),
        edit(
            payments._was_paid_all_the_same,
            "await look_up(service, _stored(service, payment_id))",
            "'unknown'",
        ),
        needs="world",
    ),
    reconciliation(
        "lost-deposit-makes-no-session",
        "3/pending-resolved",
        "A deposit whose answer was lost is found on the chain, and no session comes of it.",
        edit(
            reconcile.look_up,
            "grant(service, record.payment_id, state.use.tx_hash, record.from_address)",
            "service.store.settle(\n"
            "        record.payment_id, state.use.tx_hash, record.from_address, None\n"
            "    )",
        ),
        needs="world",
    ),
    reconciliation(
        "used-is-paid",
        "5/nonce-once",
        "A nonce that was cancelled counts as paid.",
        swap(reconcile, "_paid", lambda *_: True),
        needs="world",
    ),
    reconciliation(
        "any-transfer-counts",
        "3/pending-resolved",
        "A nonce that was used to pay somebody else counts as paid.",
        edit(reconcile._paid, "wanted in use.transfers", "bool(use.transfers)"),
        needs="world",
    ),
    reconciliation(
        "any-amount-counts",
        "3/pending-resolved",
        "A nonce that was used to pay the merchant less counts as paid.",
        edit(
            reconcile._paid,
            "wanted in use.transfers",
            "wanted[:2] in [moved[:2] for moved in use.transfers]",
        ),
        needs="world",
    ),
    reconciliation(
        "unused-is-never-paid",
        "3/pending-resolved",
        "A nonce that is still unused counts as never to be paid, while its transaction waits.",
        edit(
            reconcile.look_up,
            'return "not settled" if _is_too_late(stored, state) else "unused"',
            'return "not settled"',
        ),
        needs="world",
    ),
)
