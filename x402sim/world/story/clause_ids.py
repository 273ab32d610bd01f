"""The clauses that a check may cite: the specification's, and the token's own rules."""

from functools import cache

from x402sim.chain.ledger.token_rules import CANCEL, MINT, MOVE, RECEIVE, SEND, TRANSFER
from x402sim.text.suggest import unknown

_SPENDING = (rule.clause for rules in (TRANSFER, RECEIVE, CANCEL) for rule in rules)
_MOVING = (rule.clause for rules in (SEND, MINT, MOVE) for rule in rules)


@cache
def _clause_ids() -> tuple[str, ...]:
    from x402sim.spec.clauses import CLAUSES  # the book is long, and few worlds cite it

    return tuple(dict.fromkeys((*(each.id for each in CLAUSES), *_SPENDING, *_MOVING)))


def require_clause(clause: str, where: str) -> None:
    """Raise `ValueError` that begins with `where` for an unknown clause.

    The text lists the clauses of the same section, or all if the section is unknown.
    """
    known = _clause_ids()
    if clause in known:
        return
    section = clause.partition("/")[0] + "/"
    near = [each for each in known if each.startswith(section)]
    raise ValueError(f"{where}: {unknown('clause', clause, near or known)}")
