"""The sentences that demands on a facilitator come from, each with the revision it stands in."""

from x402sim.spec.ground import Ground
from x402sim.spec.sentences import Sentence
from x402sim.suite.texts import (
    derived as derived,
    explicit as explicit,
    ours as ours,
    sentence as _sentence,
    silent as silent,
)

# --- verifying, in the order of the text ---------------------------------------------------

SIGNATURE = _sentence(
    "v2",
    "6.1.2",
    "Signature Validation: Verify the EIP-712 signature is valid and properly signed by the payer",
)
BALANCE = _sentence(
    "v2",
    "6.1.2",
    "Balance Verification: Confirm the payer has sufficient token balance for the transfer",
)
AMOUNT = _sentence(
    "v2",
    "6.1.2",
    "Amount Validation: Ensure the payment amount exactly matches the required amount",
)
AMOUNT_V1 = _sentence(
    "v1",
    "6.1.2",
    "Amount Validation: Ensure the payment amount meets or exceeds the required amount",
)
WINDOW = _sentence(
    "v2",
    "6.1.2",
    "Time Window Check: Verify the authorization is within its valid time range",
)
PARAMETERS = _sentence(
    "v2",
    "6.1.2",
    "Parameter Matching: Confirm authorization parameters match the original payment requirements",
)
SIMULATE = _sentence(
    "v2",
    "6.1.2",
    "Transaction Simulation: Simulate the `transferWithAuthorization` transaction to ensure it "
    "would succeed",
)
RECOVERS = _sentence(
    "exact-evm",
    "Phase 2",
    "Verify the signature is valid and recovers to the `authorization.from` address",
)
SUFFICIENT = _sentence(
    "exact-evm", "Phase 2", "Verify the `client` has sufficient balance of the `asset`"
)
MEETS = _sentence(
    "exact-evm",
    "Phase 2",
    "Verify the authorization parameters (Amount, Validity Window) meet the `PaymentRequirements`",
)
TOKEN_AND_NETWORK = _sentence(
    "exact-evm", "Phase 2", "Verify the Token and Network match the requirement"
)
BYTES_65 = _sentence(
    "exact-evm",
    "Phase 1",
    "`signature`: The 65-byte signature of the `transferWithAuthorization` operation",
)
DOMAIN_NAME = _sentence(
    "exact-evm",
    "EIP-3009",
    "`extra.name` (required): The EIP-712 domain name of the token contract. Used for "
    "`transferWithAuthorization` signature construction",
)
METHOD = _sentence(
    "exact-evm",
    "EIP-3009",
    '`extra.assetTransferMethod` (conditional): MUST be "eip3009" when the payment payload uses '
    "the EIP-3009 shape",
)

# --- settling ------------------------------------------------------------------------------

VERIFIES = _sentence(
    "v2",
    "7.1",
    "Verifies a payment authorization without executing the transaction on the blockchain",
)
EXECUTES = _sentence(
    "v2", "7.2", "Executes a verified payment by broadcasting the transaction to the blockchain"
)
CALLS = _sentence(
    "v2",
    "6.1.3",
    "Settlement is performed by calling the `transferWithAuthorization` function on the ERC-20 "
    "contract with the signature and authorization parameters provided in the payment payload",
)
ONE_TRANSFER = _sentence(
    "exact",
    "Facilitator-submitted",
    "Transfer correctness: settlement MUST produce exactly one identifiable transfer of `amount` "
    "of `asset` to `payTo`",
)
CONSUMED = _sentence(
    "exact",
    "Facilitator-submitted",
    "Replay: the network's own primitive is authoritative. A consumed primitive MUST produce a "
    "settlement failure, never a success",
)
SAFETY = _sentence(
    "exact",
    "Critical Validation Requirements",
    "facilitators MUST enforce security constraints that prevent sponsorship abuse",
)
NONCE = _sentence(
    "v2",
    "10.1",
    "EIP-3009 Nonce: Each authorization includes a unique 32-byte nonce to prevent replay attacks",
)
SUCCESS = _sentence(
    "v2", "5.3.2", "`success`: Indicates whether the payment settlement was successful"
)
TRANSACTION = _sentence(
    "v2",
    "5.3.2",
    "`transaction`: Blockchain transaction hash (empty string if settlement failed)",
)
SETTLED_NETWORK = _sentence(
    "v2", "5.3.2", "`network`: Blockchain network identifier in CAIP-2 format"
)
SETTLED_NETWORK_V1 = _sentence("v1", "5.3.2", "`network`: Blockchain network identifier")
PAYER_V1 = _sentence("v1", "5.3.2", "`payer`: Address of the payer's wallet")
IS_VALID = _sentence(
    "v2", "5.4.2", "`isValid`: Indicates whether the payment authorization is valid"
)
INVALID_REASON = _sentence(
    "v2", "5.4.2", "`invalidReason`: Reason for invalidity (omitted if valid)"
)
ERROR_REASON = _sentence(
    "v2", "5.3.2", "`errorReason`: Error reason if settlement failed (omitted if successful)"
)

# --- requests and answers ------------------------------------------------------------------

INVALID_REQUEST = _sentence(
    "v2", "4", "Invalid Request: Invalid payment payload or payment requirements"
)
SERVER_ERROR = _sentence("v2", "4", "Server Error: Server error during payment processing")
INVALID_PAYLOAD = _sentence(
    "v2", "9", "`invalid_payload`: Payment payload is malformed or contains invalid data"
)
INVALID_REQUIREMENTS = _sentence(
    "v2",
    "9",
    "`invalid_payment_requirements`: Payment requirements object is invalid or malformed",
)
CODES = _sentence(
    "v2",
    "9",
    "The x402 protocol defines standard error codes that may be returned by facilitators or "
    "resource servers",
)
INVALID_SCHEME = _sentence("v2", "9", "`invalid_scheme`: Specified payment scheme is not supported")
INVALID_NETWORK = _sentence(
    "v2", "9", "`invalid_network`: Specified blockchain network is not supported"
)
INVALID_VERSION = _sentence("v2", "9", "`invalid_x402_version`: Protocol version is not supported")
PAIRS = _sentence(
    "principles",
    "",
    "Clients and facilitators must explicitly support different `(scheme, network)` pairs in order "
    "to be able to create proper payloads and verify / settle payments",
)
VALUE = _sentence("v2", "5.2.2", "`value`: Payment amount in atomic units")
REQUIRED_AMOUNT = _sentence(
    "v2", "5.1.2", "`amount`: Required payment amount in atomic token units"
)
EIP3009_WINDOW = _sentence(
    "eip-3009",
    "Specification",
    "validAfter: The time after which this is valid (unix time); validBefore: The time before "
    "which this is valid (unix time)",
)
SUPPORTED = _sentence(
    "v2",
    "7.3",
    "Returns the list of payment schemes, networks, and extensions supported by the facilitator",
)
SUPPORTED_FIELDS = _sentence(
    "v2",
    "7.3.1",
    "`kinds`: Required, Array of supported payment kind objects; `extensions`: Required, Array of "
    "extension identifiers the facilitator has implemented; `signers`: Required, Map of CAIP-2 "
    "patterns (e.g., `eip155:*`) to public signer addresses",
)
SIGNERS = _sentence(
    "v2", "7.3.1", "`signers`: Map of CAIP-2 patterns (e.g., `eip155:*`) to public signer addresses"
)
SUPPORTED_V1 = _sentence(
    "v1",
    "7.3",
    "Returns the list of payment schemes and networks supported by the facilitator",
)
DISCOVERY = _sentence("v2", "8.1", "List discoverable x402 resources from the Bazaar")
PAGES = _sentence("v2", "8.1", "`limit`: Maximum number of results to return (1-100), default 20")
INTENT = _sentence(
    "principles",
    "",
    "Trust minimizing: all payment schemes must not allow for the facilitator or resource server "
    "to move funds, other than in accordance with client intentions",
)

# --- the chain -----------------------------------------------------------------------------

DESCRIBED = _sentence("v2", "5.1.2", "`description`: Human-readable description of the resource")


def valid_settles(*sentences: Sentence) -> Ground:
    """Return the ground that what verify calls valid settles, as these sentences and it say."""
    so = "whoever serves on isValid is paid only if settle makes this call, with what was signed"
    return derived(IS_VALID, *sentences, so=so)
