"""The paths of the service's endpoints (section 4), for the service and for whoever calls it.

Clauses: 9/no-version-segment.
"""

PAY = "/api/pay"
QUOTE = "/api/perp/quote"
SESSIONS = "/api/sessions/create"
AGENTS = "/api/agents"
MARKET = "/api/perp/market"
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}
"""An order at `QUOTE`, for whoever wants any."""
PAYMENTS = "/api/payments/"
"""Before a payment id: the payment's record (2.4)."""
SESSION = "/api/sessions/"
"""Before a session id: the session's budget (2.6)."""
