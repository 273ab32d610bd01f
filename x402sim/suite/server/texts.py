"""The sentences that demands on a server come from, each with the revision it stands in."""

from dataclasses import replace

from x402sim.spec.ground import Ground
from x402sim.suite.texts import (
    derived as derived,
    explicit as explicit,
    ours as ours,
    sentence as _sentence,
    silent as silent,
)

# --- the answer ----------------------------------------------------------------------------

SUCCESS = _sentence("v2", "4", "Success: Request successful, payment verified and settled")
INVALID_REQUEST = _sentence(
    "v2", "4", "Invalid Request: Invalid payment payload or payment requirements"
)
NO_VALID_PAYMENT = _sentence(
    "v2",
    "2",
    "If no valid payment is attached, the server responds with a payment required signal and "
    "payment requirements",
)
VERIFIES = _sentence(
    "v2", "2", "Server verifies the payment authorization and initiates blockchain settlement"
)
SIGNAL = _sentence(
    "http",
    "Payment Required Signaling",
    'The server indicates payment is required using the HTTP 402 "Payment Required" status code',
)
REQUIRED = _sentence(
    "http",
    "Payment Required Signaling",
    "HTTP 402 status code with `PAYMENT-REQUIRED` header",
)
RESPONSE = _sentence(
    "http",
    "Settlement Response Delivery",
    "Servers communicate payment settlement results using the `PAYMENT-RESPONSE` header",
)
STATUS_SUCCESS = _sentence(
    "http", "Error Handling", "Success: 200, Payment verified and settled successfully"
)
STATUS_INVALID = _sentence(
    "http", "Error Handling", "Invalid Payment: 400, Malformed payment payload or requirements"
)
STATUS_FAILED = _sentence(
    "http", "Error Handling", "Payment Failed: 402, Payment verification or settlement failed"
)
STATUS_SERVER = _sentence(
    "http",
    "Error Handling",
    "Server Error: 500, Internal server error during payment processing",
)
ERROR_V1 = _sentence("http-v1", "Error Handling", '"error": "Human-readable error message"')
WHETHER = _sentence(
    "v2", "5.3.2", "`success`: Indicates whether the payment settlement was successful"
)
TRANSACTION = _sentence(
    "v2",
    "5.3.2",
    "`transaction`: Blockchain transaction hash (empty string if settlement failed)",
)
REASON = _sentence(
    "v2",
    "5.3.2",
    "`errorReason`: Error reason if settlement failed (omitted if successful)",
)

RESEND = _sentence(
    "identifier",
    "Recovering a Lost Response",
    "A client that loses the response to a paid request can resend the identical `PaymentPayload`, "
    "with the same `id`, to get that response back",
)
FLOW = _sentence(
    "exact",
    "Payment Flow",
    "By default, `exact` uses the `authorization` payment flow (verify → resource → settle): the "
    "payment is verified before the resource executes and settled afterward",
)
DECLARED_FLOW = _sentence(
    "v2",
    "6.1",
    "When the resolved payment flow is not `authorization`, `PaymentRequired` "
    "`accepts[].extra.paymentFlow` MUST be present",
)
FAILED_HANDLER = _sentence(
    "exact",
    "Payment Flow",
    "the payment commits only after the resource handler succeeds, so a failed handler leaves the "
    "client uncharged. Under `upfront` the payment commits first, so a handler failure leaves the "
    "client charged with nothing delivered",
)
HEAD = _sentence(
    "rfc-9110",
    "9.3.2",
    "The HEAD method is identical to GET except that the server MUST NOT send content in the "
    "response",
)

NOMINATED = _sentence(
    "rfc-9111",
    "4",
    "a cache MUST NOT reuse a stored response unless: [...] request header fields nominated by the "
    "stored response (if any) match those presented",
)
HEURISTIC = _sentence(
    "rfc-9111",
    "4.2.2",
    "a cache MAY assign a heuristic expiration time when an explicit time is not specified",
)

# --- the offer -----------------------------------------------------------------------------

FIELDS = _sentence(
    "v2",
    "5.1.2",
    "`scheme`, `network`, `amount`, `asset`, `payTo`, `maxTimeoutSeconds`: Required",
)
FIELDS_V1 = _sentence(
    "v1",
    "5.1.2",
    "`scheme`, `network`, `maxAmountRequired`, `asset`, `payTo`, `resource`, `description`, "
    "`maxTimeoutSeconds`: Required",
)
RESOURCE = _sentence(
    "v2",
    "5.1.2",
    "`resource`: Required, ResourceInfo object describing the protected resource",
)
EXPLAINS = _sentence(
    "v2",
    "5.1.2",
    "`error`: Human-readable error message explaining why payment is required",
)
ACCEPTS = _sentence(
    "v2",
    "5.1.2",
    "`accepts`: Array of payment requirement objects defining acceptable payment methods",
)

# --- the payment ---------------------------------------------------------------------------

UNIQUE = _sentence(
    "v2", "10.1", "Each authorization includes a unique 32-byte nonce to prevent replay attacks"
)
AUTHORIZER = _sentence(
    "eip-3009",
    "Specification",
    "Nonces are randomly generated 32-byte data unique to the authorizer's address",
)
ONE_TRANSFER = _sentence(
    "exact",
    "Facilitator-submitted",
    "settlement MUST produce exactly one identifiable transfer of `amount` of `asset` to `payTo`",
)
DUPLICATE = _sentence(
    "exact",
    "Facilitator-submitted",
    "Duplicate delivery: the network primitive prevents double-spend, not double-delivery. Where a "
    "resubmission is indistinguishable from the original, submission returns success to every "
    "caller and one payment yields several resources",
)
MATCHES = _sentence("v2", "6.1.2", "Ensure the payment amount exactly matches the required amount")
PARAMETERS = _sentence(
    "v2", "6.1.2", "Confirm authorization parameters match the original payment requirements"
)
ACCEPTED = _sentence(
    "v2",
    "5.2.2",
    "`accepted`: PaymentRequirements object indicating the payment method chosen",
)
INTENT = _sentence(
    "principles",
    "",
    "Trust minimizing: all payment schemes must not allow for the facilitator or resource server "
    "to move funds, other than in accordance with client intentions",
)

# --- extensions ----------------------------------------------------------------------------

SAME_ID = _sentence(
    "identifier", "Idempotency Behavior", "Same `id`, same payload: Return cached response"
)
SAME_ID_OTHER = _sentence(
    "identifier", "Idempotency Behavior", "Same `id`, different payload: Return 409 Conflict"
)
ID_REQUIRED = _sentence(
    "identifier",
    "Idempotency Behavior",
    "`required: true`, no `id` provided: Return 400 Bad Request",
)
BEFORE_VERIFYING = _sentence(
    "identifier",
    "Recovering a Lost Response",
    "Look up the `id` before verifying the payment. A resend can fail verification once its "
    "payment has settled or its authorization has expired",
)
STORED = _sentence(
    "identifier",
    "Recovering a Lost Response",
    "Store the response as it was sent, including the `PAYMENT-RESPONSE` header",
)
LOOKUP = _sentence(
    "identifier",
    "Recovering a Lost Response",
    "A lookup that runs before verification is unauthenticated, so bind the `id` to the exact "
    "`PaymentPayload`",
)
IN_PROGRESS = _sentence(
    "identifier",
    "Recovering a Lost Response",
    "If the original request is still being processed, do not process the resend. Return the "
    "original's response once it is available, or an error the client can retry",
)
PAID_BEFORE = _sentence(
    "sign-in",
    "Check Payment History",
    "If signature is valid, the Server checks whether the recovered `address` has previously paid "
    "for the requested resource",
)
DOMAIN = _sentence(
    "sign-in",
    "Validate Message Fields",
    "`domain` MUST match the Server's configured public origin host exactly. The Server derives "
    "the expected domain from its own configuration, not from request headers such as `Host`",
)
URI = _sentence(
    "sign-in",
    "Validate Message Fields",
    "The origin of `uri` MUST match the configured public origin exactly (scheme, host, and port)",
)
ISSUED = _sentence(
    "sign-in",
    "Validate Message Fields",
    "`issuedAt` MUST be recent (default: < 5 minutes) and MUST NOT be in the future",
)
EXPIRATION = _sentence(
    "sign-in",
    "Validate Message Fields",
    "If `expirationTime` is present, it MUST be in the future",
)
NOT_BEFORE = _sentence(
    "sign-in", "Validate Message Fields", "If `notBefore` is present, it MUST be in the past"
)
NONCE = _sentence(
    "sign-in",
    "Validate Message Fields",
    "MUST be unique. Server SHOULD track used nonces to prevent replay attacks",
)
DECLARES = _sentence(
    "bazaar",
    "Summary",
    "Resource servers declare their endpoint specifications (HTTP method or MCP tool name, input "
    "parameters, and output format) so that facilitators can catalog and index them",
)
VALIDATES = _sentence(
    "bazaar",
    "Schema Validation",
    "The `schema` field contains a JSON Schema (Draft 2020-12) that validates the structure of "
    "`info`",
)
INPUT_TYPE = _sentence(
    "bazaar",
    "Schema Validation",
    'Must validate that `input.type` equals `"http"` (for HTTP endpoints) or `"mcp"` (for MCP '
    "tools)",
)
LISTED = _sentence(
    "v2",
    "8.2",
    "`accepts`: Array of PaymentRequirements objects specifying payment methods",
)

# --- tools of MCP --------------------------------------------------------------------------

MCP_SIGNAL = _sentence(
    "mcp",
    "Payment Required Signaling",
    "When a tool requires payment, servers MUST return a tool result with `isError: true` "
    "containing the `PaymentRequired` data",
)
MCP_BOTH = _sentence(
    "mcp",
    "Server Requirements",
    "Servers MUST provide the `PaymentRequired` in both formats: `structuredContent` (REQUIRED): "
    "Direct `PaymentRequired` object; `content[0].text` (REQUIRED): JSON-encoded string of the "
    "same `PaymentRequired` object",
)
MCP_IDENTICAL = _sentence("mcp", "Server Requirements", "Both fields contain identical data")
MCP_RESPONSE = _sentence(
    "mcp",
    "Settlement Response Delivery",
    'Servers communicate payment settlement results using the `_meta["x402/payment-response"]` '
    "field",
)
MCP_SERVES = _sentence(
    "mcp",
    "Payment Flow Overview",
    'Server returns tool result with settlement info in `_meta["x402/payment-response"]`',
)
MCP_INVALID = _sentence(
    "mcp",
    "Error Handling",
    "Payment Invalid: Tool result with `isError: true`, Payment verification failed, returns "
    "`PaymentRequired` with reason",
)
MCP_FAILED = _sentence(
    "mcp",
    "Error Handling",
    "Settlement Failed: Tool result with `isError: true`, Settlement failed after execution, "
    "returns failure details",
)
MCP_NO_CONTENT = _sentence(
    "mcp",
    "Settlement Failure",
    "If settlement fails after the tool has already executed, the server should not return the "
    "tool's content - only the payment error",
)
MCP_DRAFT = _sentence(
    "mcp",
    "Extension Binding",
    "The `org.x402/payment` extension binding is experimental and is not an official MCP extension",
)
_IN_TOOLS = {
    SIGNAL: MCP_SIGNAL,
    REQUIRED: MCP_BOTH,
    RESPONSE: MCP_RESPONSE,
    STATUS_SUCCESS: MCP_SERVES,
    STATUS_INVALID: MCP_INVALID,
    STATUS_FAILED: MCP_FAILED,
    STATUS_SERVER: None,
    FIELDS_V1: None,
    ERROR_V1: None,
    HEAD: None,
}
"""The sentences of the transport MCP that say what those of HTTP and of version 1 say; None if
there is none.
"""


def of_tools(ground: Ground) -> Ground | None:
    """Return a ground in the words of the transport MCP; None if none of its sentences has any."""
    found = [_IN_TOOLS.get(each, each) for each in ground.sentences]
    kept = tuple(dict.fromkeys(each for each in found if each is not None))
    if ground.sentences and not kept:
        return None
    return replace(ground, sentences=kept)
