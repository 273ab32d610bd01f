"""The clauses of sections 5 to 9: access, events, errors, limits, versioning."""

from x402sim.spec.clause import Clause
from x402sim.spec.ground import explicit, silent

ACCESS_ERRORS_AND_LIMITS: tuple[Clause, ...] = (
    # 5. Authentication
    Clause(
        "5/cache-first",
        "X-Payment-Id is looked up in the cache, for exactly the requested resource.",
        "service.entitlements:Entitlements.grants",
        explicit("5: X-Payment-Id", "5: Look in the in-memory", "5: When it is present"),
    ),
    Clause(
        "5/stored-records",
        "If it is not cached, the stored records decide: same id, same resource, status settled.",
        "service.store.payment_records:PaymentRecords.grants",
        explicit("5: Otherwise look", "5: When one exists", "5: Otherwise the response is 402"),
    ),
    Clause(
        "5/resource-binding",
        "An entitlement is valid only for the exact resource paid for.",
        "service.gate:is_entitled",
        explicit("5: An entitlement is valid only"),
    ),
    Clause(
        "5/session-condition",
        "A session is served when deposited - released >= the amount required.",
        "service.store.session_budgets:SessionBudgets.can_pay",
        explicit("5: When deposited - released"),
    ),
    Clause(
        "5/session-debit",
        "Serving it increases released by that amount, never above the deposit.",
        "service.store.session_budgets:SessionBudgets.debit",
        explicit("5: When deposited - released", "3: Each accepted request"),
    ),
    Clause(
        "5/signature-proves",
        "The signature proves the exact amount, the exact recipient and the time window.",
        "protocol.eip3009:transfer_digest",
        explicit("5: The signature proves"),
    ),
    Clause(
        "5/nonce-once",
        "Each nonce of a payer is used once, which prevents replay and double-spending.",
        "chain.ledger.token:Frame.use",
        explicit("5: The token contract keeps"),
    ),
    Clause(
        "5/window",
        "An authorization outside validAfter..validBefore is rejected.",
        "protocol.eip3009:is_late",
        explicit("5: An authorization outside"),
    ),
    Clause(
        "5/exact-recipient",
        "The authorization must pay the payTo of the requirements, and no other address.",
        "protocol.rules:VERIFICATION",
        explicit("5: The signature proves", "2.1: payTo"),
    ),
    Clause(
        "5/exact-amount",
        "The amount must equal maxAmountRequired; over- and underpaying are rejected.",
        "protocol.rules:VERIFICATION",
        explicit("5: The amount must equal", "2.1: maxAmountRequired"),
    ),
    # 6. Events
    Clause(
        "6/reputation",
        "The indexer triggers reputation updates after payments are matched.",
        "service.store.payment_records:PaymentRecords.update_reputation",
        explicit("6: One internal effect"),
    ),
    # 7. Errors
    Clause(
        "7/payment-required",
        "No valid proof of payment: 402 with the body of 2.2.",
        "service.app:payment_required",
        explicit("7: Payment-required", "4.2: No valid proof of payment"),
    ),
    Clause(
        "7/insufficient-balance",
        'The payer lacks the amount: "Insufficient USDC balance".',
        "service.upstream.cronos:refusal_of",
        explicit("7: Insufficient USDC balance"),
    ),
    Clause(
        "7/invalid-signature",
        'Signature verification failed: "Invalid signature".',
        "service.payments:verify",
        explicit("7: Invalid signature"),
    ),
    Clause(
        "7/nonce-already-used",
        'Replay or stale nonce: "Nonce already used".',
        "service.payments:claim",
        explicit("7: Nonce already used"),
    ),
    Clause(
        "7/authorization-expired",
        'validBefore has passed: "Authorization expired".',
        "service.upstream.cronos:refusal_of",
        explicit("7: Authorization expired"),
    ),
    Clause(
        "7/payment-already-settled",
        'The payment id was already used: "Payment already settled".',
        "service.attempts:check",
        explicit("7: Payment already settled"),
    ),
    # 8. Limits
    Clause(
        "8/quote-price",
        "A quote costs 10000 base units.",
        "service.settings:Settings",
        explicit("8: Quote price"),
    ),
    Clause(
        "8/timeout",
        "maxTimeoutSeconds is 300.",
        "service.issue:Issuer.issue",
        explicit("8: maxTimeoutSeconds"),
    ),
    Clause(
        "8/validity-window",
        "Authorizations are valid from 60 s before signing to 300 s after.",
        "payer.wallet:Wallet.authorize",
        explicit("8: Authorization validity window"),
    ),
    Clause(
        "8/cache-lifetime",
        "The entitlement cache lives 24 hours.",
        "service.entitlements:Entitlements.grants",
        explicit("8: Entitlement cache lifetime"),
    ),
    Clause(
        "8/cache-sweep",
        "Expired entitlements are cleared hourly.",
        "service.background:run_background",
        explicit("8: Entitlement cache lifetime"),
    ),
    Clause(
        "8/indexer-interval",
        "The indexer runs every 5 minutes.",
        "service.background:run_background",
        explicit("8: Payment indexer interval"),
    ),
    Clause(
        "8/indexer-batch",
        "At most 100 records per run, those with block_number null, newest first.",
        "service.store.payment_records:PaymentRecords.unindexed",
        explicit("8: Indexer batch"),
    ),
    Clause(
        "8/indexer-query",
        "The explorer is asked for each tx_hash, and a block number is stored.",
        "service.upstream.explorer:ExplorerClient.transaction",
        explicit("8: Indexer behaviour"),
    ),
    # 9. Versioning
    Clause(
        "9/no-version-segment",
        "Paths carry no version segment.",
        "service.app:service_app",
        silent("9: Versioning: not shown", "9: Paths carry no version segment"),
    ),
)
