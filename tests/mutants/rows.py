"""All defects: importing this module has every row added to `MUTANTS`, in the matrix's order."""

# ruff: noqa: F401, I001
from tests.mutants import required, gate, settlement, session, concurrency, malformed
from tests.mutants import reconciliation, indexer, lasting
from tests.mutants.mutant import MUTANTS
