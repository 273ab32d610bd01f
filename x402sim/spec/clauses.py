"""Every clause of the service's specification: one sentence in our words, and its code.

An id is section/slug and never changes. `kept_by` names the function or class that implements it,
as module:name below `x402sim`. Its docstring cites the id, and the tests marked with the id fail
without it.
"""

from x402sim.spec.clause import Clause


def _must(slug: str, text: str, kept_by: str) -> Clause:
    return Clause(slug, "MUST", text, kept_by)


CLAUSES: tuple[Clause, ...] = (
    # 1. What the service does
    _must(
        "1/unpaid-402",
        "A protected endpoint called without proof of payment answers 402 with requirements.",
        "service.app:payment_required",
    ),
    _must(
        "1/sign-settle-repeat",
        "A payer signs off-chain, settles, and repeats the request with X-Payment-Id.",
        "payer.auth:PaymentAuth",
    ),
    _must(
        "1/payer-pays-no-gas",
        "The payer submits no transaction and pays no gas; the facilitator does.",
        "facilitator.engine:settle",
    ),
    _must(
        "1/repeat-served",
        "The repeated request with the payment id returns the protected content.",
        "service.app:perp_quote",
    ),
    _must(
        "1/session-no-402",
        "A funded session is spent request by request, without a 402 round trip.",
        "payer.session:SessionAuth",
    ),
    _must(
        "1/indexer",
        "An indexer runs periodically and completes stored payments with block data.",
        "service.indexer:run",
    ),
    # 2.1 Payment requirements
    _must(
        "2.1/requirements",
        "Requirements carry scheme, network, payTo, asset, maxAmountRequired, "
        "maxTimeoutSeconds, resource and an optional description.",
        "service.issue:Issuer.requirements",
    ),
    _must(
        "2.1/scheme",
        'The scheme is "exact", and requirements sent back with another are refused.',
        "protocol.rules:SETTLEMENT",
    ),
    _must(
        "2.1/network",
        "The network is the deployment's, and requirements with another are refused.",
        "protocol.rules:SETTLEMENT",
    ),
    _must(
        "2.1/pay-to",
        "payTo is the merchant's address, and requirements with another are refused.",
        "protocol.rules:SETTLEMENT",
    ),
    _must(
        "2.1/asset",
        "asset is the network's token, and requirements with another are refused.",
        "protocol.rules:SETTLEMENT",
    ),
    _must(
        "2.1/amount",
        "maxAmountRequired is a string of base units, exactly what was issued.",
        "protocol.rules:SETTLEMENT",
    ),
    _must(
        "2.1/timeout",
        "maxTimeoutSeconds is an integer, exactly what was issued.",
        "protocol.rules:SETTLEMENT",
    ),
    _must(
        "2.1/validity",
        "Requirements are no longer valid once maxTimeoutSeconds have passed.",
        "protocol.rules:FRESHNESS",
    ),
    _must(
        "2.1/resource",
        "resource is the path of the protected endpoint, exactly what was issued.",
        "protocol.rules:SETTLEMENT",
    ),
    _must(
        "2.1/description",
        "description is optional and need not be sent back.",
        "protocol.rules:SETTLEMENT",
    ),
    # 2.2 The 402
    _must(
        "2.2/body",
        'A 402 has error "Payment Required", paymentId, paymentRequirements, a message that '
        "states the amount in base units, and the same network as the requirements.",
        "service.issue:Issuer.issue",
    ),
    _must(
        "2.2/payment-id",
        "A payment id is pay_ and an opaque part; an id that was not issued here settles nothing.",
        "service.issue:Issuer.read",
    ),
    # 2.3 Payment header
    _must(
        "2.3/hex-header",
        "The payment header is a hex string prefixed 0x.",
        "protocol.header:encode_header",
    ),
    _must(
        "2.3/contents",
        "It carries the TransferWithAuthorization parameters, the signature, the nonce and the "
        "validity window.",
        "protocol.header:authorization_of",
    ),
    _must(
        "2.3/window",
        "validAfter is 60 seconds before signing, validBefore 300 seconds after.",
        "payer.wallet:Wallet.authorize",
    ),
    # 2.4 to 2.8 Resources
    _must(
        "2.4/record",
        "A stored payment has payment_id, tx_hash, from_address, to_address, amount, "
        "resource_url, status, block_number and timestamp.",
        "service.app:show_payment",
    ),
    _must(
        "2.4/block-null",
        "block_number is null at creation and filled in by the indexer.",
        "service.store.payment_records:Payments.insert_pending",
    ),
    _must(
        "2.5/entitlement",
        "An entitlement holds paymentId, resourceUrl, userAddress and a timestamp, in memory.",
        "service.entitlements:Entitlement",
    ),
    _must(
        "2.6/id-prefix",
        "A session id has the prefix session_.",
        "service.grant:session_id",
    ),
    _must(
        "2.6/remaining",
        "Remaining budget = deposited - released.",
        "service.sessions:view",
    ),
    _must("2.7/agent", "The service lists agents.", "service.agents:agents"),
    _must(
        "2.8/networks",
        "The testnet has chain id 338, mainnet 25, each with its token contract.",
        "protocol.networks:network_named",
    ),
    _must(
        "2.8/settings",
        "Private key, merchant address, token address and network are deployment settings.",
        "service.settings:settings_from_env",
    ),
    # 3. States
    _must(
        "3/discarded-after-24h",
        "A cached entitlement is discarded 24 hours after creation.",
        "service.entitlements:Entitlements.sweep",
    ),
    _must(
        "3/record-outlives-cache",
        "The persistent record outlives the cached entitlement and still grants access.",
        "service.store.payment_records:Payments.grants",
    ),
    _must(
        "3/indexed-status",
        "The indexer updates block_number and status.",
        "service.indexer:run",
    ),
    _must(
        "3/deposit-makes-session",
        "A settled deposit makes one session, of the amount that was settled.",
        "service.grant:grant",
    ),
    _must(
        "3/expiry-refund",
        "A session expires, and then its unspent balance is refunded.",
        "service.sessions:expire",
    ),
    _must(
        "3/refund-once",
        "The unspent balance is refunded exactly once, even after failures.",
        "service.sessions:pay_back",
    ),
    _must(
        "3/pending-resolved",
        "A settlement whose answer was lost is resolved, and never charged twice or lost.",
        "service.reconcile:reconcile",
    ),
    # 4.1 POST /api/pay
    _must(
        "4.1/order",
        "A settlement validates, verifies, settles, stores, caches and answers, in this order.",
        "service.payments:pay",
    ),
    _must("4.1/validate", "The parameters are validated first.", "service.payments:validate"),
    _must(
        "4.1/build-verify",
        "The facilitator's verify request is built from header and requirements.",
        "service.upstream.cronos:request",
    ),
    _must(
        "4.1/verify-signature",
        'The EIP-3009 signature is verified; an invalid one is refused with "Invalid signature".',
        "service.payments:verify",
    ),
    _must(
        "4.1/settle-on-chain",
        "The facilitator executes transferWithAuthorization and pays the gas.",
        "service.payments:settle",
    ),
    _must(
        "4.1/store-settled",
        'The payment record is stored with status "settled".',
        "service.store.payment_records:Payments.mark_settled",
    ),
    _must(
        "4.1/cache",
        "The entitlement is cached: payment id, resource, payer.",
        "service.entitlements:Entitlements.add",
    ),
    _must(
        "4.1/receipt",
        "Success is 200 with success true, paymentId, txHash and a timestamp in epoch ms.",
        "service.payments:receipt",
    ),
    # 4.2 to 4.5 The other endpoints
    _must(
        "4.2/price",
        "A quote requires a payment of 10000 base units.",
        "service.app:perp_quote",
    ),
    _must(
        "4.2/quote",
        "A paid quote has pair, entryPrice, liquidationPrice, fundingRate and bestVenue.",
        "service.quotes:quote",
    ),
    _must("4.3/list", "GET /api/agents lists the agents.", "service.agents:agents"),
    _must(
        "4.4/deposit-402",
        "POST /api/sessions/create answers 402 for the session's deposit.",
        "service.sessions:offer",
    ),
    _must(
        "4.4/max-spend",
        "maxSpend is a decimal string with two fraction digits, the budget exactly.",
        "service.sessions:offer",
    ),
    _must(
        "4.4/deposit-flow",
        "The deposit is paid through the x402 flow, and the session can then be spent.",
        "service.app:create_session",
    ),
    _must(
        "4.5/llms-txt",
        "A plain-text index of all documentation pages is served at /llms.txt.",
        "service.docs.pages:llms_txt",
    ),
    # 5. Authentication
    _must(
        "5/cache-first",
        "X-Payment-Id is looked up in the cache, for exactly the requested resource.",
        "service.entitlements:Entitlements.grants",
    ),
    _must(
        "5/stored-records",
        "If it is not cached, the stored records decide: same id, same resource, status settled.",
        "service.store.payment_records:Payments.grants",
    ),
    _must(
        "5/resource-binding",
        "An entitlement is valid only for the exact resource paid for.",
        "service.gate:is_entitled",
    ),
    _must(
        "5/session-condition",
        "A session is served when deposited - released >= the amount required.",
        "service.store.session_budgets:Sessions.can_pay",
    ),
    _must(
        "5/session-debit",
        "Serving it increases released by that amount, never above the deposit.",
        "service.store.session_budgets:Sessions.debit",
    ),
    _must(
        "5/signature-proves",
        "The signature proves the exact amount, the exact recipient and the time window.",
        "protocol.eip3009:transfer_digest",
    ),
    _must(
        "5/nonce-once",
        "Each nonce of a payer is used once, which prevents replay and double-spending.",
        "chain.ledger.token:Frame.use",
    ),
    _must(
        "5/window",
        "An authorization outside validAfter..validBefore is rejected.",
        "protocol.eip3009:is_late",
    ),
    _must(
        "5/exact-recipient",
        "The authorization must pay the payTo of the requirements, and no other address.",
        "protocol.rules:VERIFICATION",
    ),
    _must(
        "5/exact-amount",
        "The amount must equal maxAmountRequired; over- and underpaying are rejected.",
        "protocol.rules:VERIFICATION",
    ),
    # 6. Events
    _must(
        "6/reputation",
        "The indexer triggers reputation updates after payments are matched.",
        "service.store.payment_records:Payments.update_reputation",
    ),
    # 7. Errors
    _must(
        "7/payment-required",
        "No valid proof of payment: 402 with the body of 2.2.",
        "service.app:payment_required",
    ),
    _must(
        "7/insufficient-balance",
        'The payer lacks the amount: "Insufficient USDC balance".',
        "service.upstream.cronos:refusal_of",
    ),
    _must(
        "7/invalid-signature",
        'Signature verification failed: "Invalid signature".',
        "service.payments:verify",
    ),
    _must(
        "7/nonce-already-used",
        'Replay or stale nonce: "Nonce already used".',
        "service.payments:claim",
    ),
    _must(
        "7/authorization-expired",
        'validBefore has passed: "Authorization expired".',
        "service.upstream.cronos:refusal_of",
    ),
    _must(
        "7/payment-already-settled",
        'The payment id was already used: "Payment already settled".',
        "service.attempts:claim",
    ),
    # 8. Limits
    _must("8/quote-price", "A quote costs 10000 base units.", "service.settings:Settings"),
    _must("8/timeout", "maxTimeoutSeconds is 300.", "service.issue:Issuer.issue"),
    _must(
        "8/validity-window",
        "Authorizations are valid from 60 s before signing to 300 s after.",
        "payer.wallet:Wallet.authorize",
    ),
    _must(
        "8/cache-lifetime",
        "The entitlement cache lives 24 hours.",
        "service.entitlements:Entitlements.grants",
    ),
    _must(
        "8/cache-sweep",
        "Expired entitlements are cleared hourly.",
        "service.background:run_background",
    ),
    _must(
        "8/indexer-interval",
        "The indexer runs every 5 minutes.",
        "service.background:run_background",
    ),
    _must(
        "8/indexer-batch",
        "At most 100 records per run, those with block_number null, newest first.",
        "service.store.payment_records:Payments.unindexed",
    ),
    _must(
        "8/indexer-query",
        "The explorer is asked for each tx_hash, and a block number is stored.",
        "service.upstream.explorer:ExplorerClient.transaction",
    ),
    # 9. Versioning
    _must(
        "9/no-version-segment",
        "Paths carry no version segment.",
        "service.app:service_app",
    ),
)
