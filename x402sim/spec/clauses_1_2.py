"""The clauses of sections 1 and 2: the flow, and the resources."""

from x402sim.spec.clause import Clause
from x402sim.spec.ground import derived, explicit

SENT_BACK = (
    "2.1: Returned inside the 402 body",
    "4.1: paymentRequirements",
    "4.1: Validate the parameters",
)
AS_ISSUED = (
    "The requirements that come back are those of the 402, and the parameters are validated: "
    "whatever is sent, a payment is refused, or settled exactly on the terms that were issued."
)
"""Why no other terms than the issued ones can be settled."""

FLOW_AND_RESOURCES: tuple[Clause, ...] = (
    # 1. What the service does
    Clause(
        "1/unpaid-402",
        "A protected endpoint called without proof of payment answers 402 with requirements.",
        "service.app:payment_required",
        explicit(
            "1: Some endpoints are protected",
            "1: A client calls a protected endpoint",
            "1: The service answers 402",
        ),
    ),
    Clause(
        "1/sign-settle-repeat",
        "A payer signs off-chain, settles, and repeats the request with X-Payment-Id.",
        "payer.auth:PaymentAuth",
        explicit(
            "1: The client signs",
            "1: The client sends the signed",
            "1: The service records the payment",
            "1: The client repeats",
        ),
    ),
    Clause(
        "1/payer-pays-no-gas",
        "The payer submits no transaction and pays no gas; the facilitator does.",
        "facilitator.engine:settle",
        explicit("1: The client submits no", "1: The facilitator pays the gas"),
    ),
    Clause(
        "1/repeat-served",
        "The repeated request with the payment id returns the protected content.",
        "service.app:perp_quote",
        explicit("1: The client repeats", "1: The service returns the protected content"),
    ),
    Clause(
        "1/session-no-402",
        "A funded session is spent request by request, without a 402 round trip.",
        "payer.session:SessionAuth",
        explicit("1: Alternatively, a client funds", "1: Each request is deducted"),
    ),
    Clause(
        "1/indexer",
        "An indexer runs periodically and completes stored payments with block data.",
        "service.indexer:run",
        explicit("1: A background payment indexer"),
    ),
    # 2.1 Payment requirements
    Clause(
        "2.1/requirements",
        "Requirements carry scheme, network, payTo, asset, maxAmountRequired, "
        "maxTimeoutSeconds, resource and an optional description.",
        "service.issue:asked",
        explicit(
            "2.1: Returned inside the 402 body",
            "2.1: scheme",
            "2.1: network",
            "2.1: payTo",
            "2.1: asset",
            "2.1: maxAmountRequired",
            "2.1: maxTimeoutSeconds",
            "2.1: resource",
            "2.1: description",
        ),
    ),
    Clause(
        "2.1/scheme",
        'The scheme is "exact"; requirements sent back with another settle nothing else.',
        "protocol.rules:SETTLEMENT",
        derived("2.1: scheme", *SENT_BACK, step=AS_ISSUED),
    ),
    Clause(
        "2.1/network",
        "The network is the deployment's; requirements with another settle nothing else.",
        "protocol.rules:SETTLEMENT",
        derived("2.1: network", *SENT_BACK, step=AS_ISSUED),
    ),
    Clause(
        "2.1/pay-to",
        "payTo is the merchant's address; requirements with another settle nothing else.",
        "protocol.rules:SETTLEMENT",
        derived("2.1: payTo", "5: The signature proves", *SENT_BACK, step=AS_ISSUED),
    ),
    Clause(
        "2.1/asset",
        "asset is the network's token; requirements with another settle nothing else.",
        "protocol.rules:SETTLEMENT",
        derived("2.1: asset", *SENT_BACK, step=AS_ISSUED),
    ),
    Clause(
        "2.1/amount",
        "maxAmountRequired is a string of base units, exactly what was issued.",
        "protocol.rules:SETTLEMENT",
        derived("2.1: maxAmountRequired", "5: The amount must equal", *SENT_BACK, step=AS_ISSUED),
    ),
    Clause(
        "2.1/timeout",
        "maxTimeoutSeconds is an integer, exactly what was issued.",
        "protocol.rules:SETTLEMENT",
        derived("2.1: maxTimeoutSeconds", *SENT_BACK, step=AS_ISSUED),
    ),
    Clause(
        "2.1/validity",
        "Requirements are no longer valid once maxTimeoutSeconds have passed.",
        "protocol.rules:FRESHNESS",
        derived(
            "2.1: maxTimeoutSeconds",
            step="A requirement whose validity has timed out can no longer be paid.",
        ),
    ),
    Clause(
        "2.1/resource",
        "resource is the path of the protected endpoint, exactly what was issued.",
        "protocol.rules:SETTLEMENT",
        derived("2.1: resource", "5: An entitlement is valid only", *SENT_BACK, step=AS_ISSUED),
    ),
    Clause(
        "2.1/description",
        "description is present in a 402, and need not be sent back.",
        "protocol.rules:SETTLEMENT",
        explicit("2.1: description", "4.1: paymentRequirements"),
    ),
    Clause(
        "2.1/description-shown",
        "The requirements of a 402 have a description.",
        "service.issue:asked",
        explicit("2.1: description"),
    ),
    # 2.2 The 402
    Clause(
        "2.2/body",
        'A 402 has error "Payment Required", paymentId, paymentRequirements, a message that '
        "states the amount in base units, and the same network as the requirements.",
        "service.issue:Issuer.issue",
        explicit(
            "0: All bodies are JSON",
            "2.2: error",
            "2.2: paymentId",
            "2.2: paymentRequirements",
            "2.2: message",
            "2.2: network",
        ),
    ),
    Clause(
        "2.2/payment-id",
        "A payment id is pay_ and an opaque part; an id that was not issued here settles nothing.",
        "service.issue:Issuer.read",
        explicit("2.2: paymentId"),
    ),
    # 2.3 Payment header
    Clause(
        "2.3/hex-header",
        "The payment header is a hex string prefixed 0x.",
        "protocol.header:encode_header",
        explicit("2.3: An opaque hex string", "4.1: paymentHeader"),
    ),
    Clause(
        "2.3/contents",
        "It carries the TransferWithAuthorization parameters, the signature, the nonce and "
        "the validity window.",
        "protocol.header:authorization_of",
        explicit("2.3: It carries", "2.3: The window is", "2.3: The client builds it"),
    ),
    Clause(
        "2.3/window",
        "validAfter is 60 seconds before signing, validBefore 300 seconds after.",
        "payer.wallet:Wallet.authorize",
        explicit("2.3: The validity window shown"),
    ),
    # 2.4 to 2.8 Resources
    Clause(
        "2.4/record",
        "A stored payment has payment_id, tx_hash, from_address, to_address, amount, "
        "resource_url, status, block_number and timestamp.",
        "service.app:show_payment",
        explicit(
            "2.4: payment_id",
            "2.4: tx_hash",
            "2.4: from_address",
            "2.4: to_address",
            "2.4: amount",
            "2.4: resource_url",
            "2.4: status",
            "2.4: block_number",
            "2.4: timestamp",
        ),
    ),
    Clause(
        "2.4/block-null",
        "block_number is null at creation and filled in by the indexer.",
        "service.store.payment_records:PaymentRecords.insert_pending",
        explicit("2.4: block_number"),
    ),
    Clause(
        "2.5/entitlement",
        "An entitlement holds paymentId, resourceUrl, userAddress and a timestamp, in memory.",
        "service.entitlements:Entitlement",
        explicit(
            "2.5: paymentId",
            "2.5: resourceUrl",
            "2.5: userAddress",
            "2.5: timestamp",
            "3: An entitlement is held in memory",
        ),
    ),
    Clause(
        "2.6/id-prefix",
        "A session id has the prefix session_.",
        "service.grant:session_id",
        explicit("2.6: A session is identified"),
    ),
    Clause(
        "2.6/remaining",
        "Remaining budget = deposited - released.",
        "service.sessions:view",
        explicit("2.6: It has a deposited amount", "2.6: Remaining budget"),
    ),
    Clause(
        "2.7/agent",
        "The service lists agents.",
        "service.agents:agents",
        explicit("2.7: The service lists agents"),
    ),
    Clause(
        "2.8/networks",
        "The testnet has chain id 338, mainnet 25, each with its token contract.",
        "protocol.networks:network_named",
        explicit("2.8: testnet", "2.8: mainnet"),
    ),
    Clause(
        "2.8/settings",
        "Private key, merchant address, token address and network are deployment settings.",
        "service.setup:setup_from_env",
        explicit("2.8: The selected network", "2.8: The settings named"),
    ),
)
