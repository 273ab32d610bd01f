"""All defects: importing this module has every row added to `MUTANTS`, in the matrix's order."""

# ruff: noqa: F401, I001
from tests.mutants import required, gate, content, binding, settlement, facilitator, replay
from tests.mutants import receipt, error, malformed, session, concurrency, reconciliation, indexer
from tests.mutants import lasting, spelling, traces
from tests.mutants.mutant import MUTANTS
