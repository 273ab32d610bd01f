"""The clauses of sections 3 and 4: states, transitions and endpoints."""

from x402sim.spec.clause import Clause
from x402sim.spec.ground import derived, explicit, ours

STATES_AND_ENDPOINTS: tuple[Clause, ...] = (
    # 3. States
    Clause(
        "3/discarded-after-24h",
        "A cached entitlement is discarded 24 hours after creation.",
        "service.entitlements:Entitlements.sweep",
        explicit("3: An entitlement is held in memory"),
    ),
    Clause(
        "3/record-outlives-cache",
        "The persistent record outlives the cached entitlement and still grants access.",
        "service.store.payment_records:PaymentRecords.grants",
        explicit("3: The persistent record is not", "5: Otherwise look", "5: When one exists"),
    ),
    Clause(
        "3/indexed-status",
        "The indexer updates block_number and status.",
        "service.indexer:run",
        explicit('3: The indexer "updates'),
    ),
    Clause(
        "3/deposit-makes-session",
        "A settled deposit makes one session, of the amount that was settled.",
        "service.grant:grant",
        derived(
            "1: Alternatively, a client funds",
            "4.4: maxSpend",
            "4.4: The client pays the deposit",
            step="The budget is what was funded, and it is funded once: a deposit opens one "
            "session of the amount that was settled.",
        ),
    ),
    Clause(
        "3/expiry-refund",
        "A session expires, and then its unspent balance is refunded.",
        "service.sessions:expire",
        explicit("3: A session expires"),
    ),
    Clause(
        "3/refund-once",
        "The unspent balance is refunded exactly once, even after failures.",
        "service.sessions:pay_back",
        derived(
            "3: A session expires",
            step="What has been refunded is no longer unspent: there is no second refund.",
        ),
    ),
    Clause(
        "3/pending-resolved",
        "A settlement whose answer was lost is resolved, and never charged twice or lost.",
        "service.reconcile:reconcile",
        ours(
            "The specification says nothing about lost answers. A payer whose money has moved "
            "should get what was paid for, and should not pay twice."
        ),
    ),
    # 4.1 POST /api/pay
    Clause(
        "4.1/order",
        "A settlement validates, verifies, settles, stores, caches and answers, in this order.",
        "service.payments:pay",
        explicit(
            "4.1: Processing order",
            "4.1: Validate the parameters",
            "4.1: Build the facilitator",
            "4.1: Verify the EIP-3009",
            "4.1: Settle on-chain",
            "4.1: Store the payment record",
            "4.1: Cache the entitlement",
            "4.1: Return the transaction hash",
        ),
    ),
    Clause(
        "4.1/validate",
        "The parameters are validated first.",
        "service.payments:validate",
        explicit("4.1: Validate the parameters"),
    ),
    Clause(
        "4.1/build-verify",
        "The facilitator's verify request is built from header and requirements.",
        "service.upstream.cronos:request",
        explicit("4.1: Build the facilitator", "1: The service has an external facilitator"),
    ),
    Clause(
        "4.1/verify-signature",
        'The EIP-3009 signature is verified; an invalid one is refused with "Invalid signature".',
        "service.payments:verify",
        explicit("4.1: Verify the EIP-3009", "4.1: If it is not valid"),
    ),
    Clause(
        "4.1/settle-on-chain",
        "The facilitator executes transferWithAuthorization and pays the gas.",
        "service.payments:settle",
        explicit("4.1: Settle on-chain", "4.1: The facilitator executes"),
    ),
    Clause(
        "4.1/store-settled",
        'The payment record is stored with status "settled".',
        "service.store.payment_records:PaymentRecords.mark_settled",
        explicit(
            "4.1: Store the payment record",
            "2.4: status",
            "3: A payment record has a status",
            "3: The value",
        ),
    ),
    Clause(
        "4.1/cache",
        "The entitlement is cached: payment id, resource, payer.",
        "service.entitlements:Entitlements.add",
        explicit("4.1: Cache the entitlement"),
    ),
    Clause(
        "4.1/receipt",
        "Success is 200 with success true, paymentId, txHash and a timestamp in epoch ms.",
        "service.payments:receipt",
        explicit(
            "4.1: Return the transaction hash",
            "4.1: Success response",
            "4.1: success | boolean",
            "4.1: paymentId | string",
            "4.1: txHash",
            "4.1: timestamp",
        ),
    ),
    # 4.2 to 4.5 The other endpoints
    Clause(
        "4.2/price",
        "A quote requires a payment of 10000 base units.",
        "service.app:perp_quote",
        explicit("4.2: This endpoint requires payment", "4.2: The amount shown"),
    ),
    Clause(
        "4.2/quote",
        "A paid quote has pair, entryPrice, liquidationPrice, fundingRate and bestVenue.",
        "service.quotes:quote",
        explicit(
            "4.2: Proof of payment accepted",
            "4.2: pair | string",
            "4.2: entryPrice",
            "4.2: liquidationPrice",
            "4.2: fundingRate",
            "4.2: bestVenue",
        ),
    ),
    Clause(
        "4.3/list",
        "GET /api/agents lists the agents.",
        "service.agents:agents",
        explicit("1: The service also lists agents", "2.7: The service lists agents"),
    ),
    Clause(
        "4.4/deposit-402",
        "POST /api/sessions/create answers 402 for the session's deposit.",
        "service.sessions:offer",
        explicit("4.4: Response: 402"),
    ),
    Clause(
        "4.4/max-spend",
        "maxSpend is a decimal string with two fraction digits, the budget exactly.",
        "service.sessions:offer",
        derived(
            "4.4: maxSpend",
            "4.4: Response: 402",
            step="The deposit funds the budget, which is maxSpend: the 402 asks for exactly it.",
        ),
    ),
    Clause(
        "4.4/deposit-flow",
        "The deposit is paid through the x402 flow, and the session can then be spent.",
        "service.app:create_session",
        explicit("4.4: The client pays the deposit", "1: Alternatively, a client funds"),
    ),
    Clause(
        "4.5/llms-txt",
        "A plain-text index of all documentation pages is served at /llms.txt.",
        "service.docs.pages:llms_txt",
        explicit("4.5: A plain-text index"),
    ),
)
