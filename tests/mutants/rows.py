"""Which defects are there?"""

from tests.mutants import (
    binding,
    concurrency,
    content,
    error,
    facilitator,
    gate,
    indexer,
    lasting,
    malformed,
    receipt,
    reconciliation,
    replay,
    required,
    session,
    settlement,
    varied,
)
from tests.mutants.mutant import Mutant

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for module in (
        required,
        gate,
        content,
        binding,
        settlement,
        facilitator,
        replay,
        receipt,
        error,
        malformed,
        session,
        concurrency,
        reconciliation,
        indexer,
        lasting,
        varied,
    )
    for mutant in module.ROWS
}
"""Every defect, by its name."""
