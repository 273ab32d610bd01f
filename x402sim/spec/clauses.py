"""Every clause of the service's specification: one sentence in our words, and its code.

An id is section/slug and never changes. `kept_by` names the function or class that implements it,
as module:name below `x402sim`. Its docstring cites the id, and the tests marked with the id fail
without it. `ground` quotes the sentences of the specification that the clause comes from.
"""

from x402sim.spec.clause import Clause
from x402sim.spec.clauses_1_2 import FLOW_AND_RESOURCES
from x402sim.spec.clauses_3_4 import STATES_AND_ENDPOINTS
from x402sim.spec.clauses_5_9 import ACCESS_ERRORS_AND_LIMITS

CLAUSES: tuple[Clause, ...] = (
    *FLOW_AND_RESOURCES,
    *STATES_AND_ENDPOINTS,
    *ACCESS_ERRORS_AND_LIMITS,
)
