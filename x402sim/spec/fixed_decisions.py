"""The decisions that have no second, equally good value to switch to: see `decisions`."""

from x402sim.spec.decision import Decision

FIXED: tuple[Decision, ...] = (
    Decision(
        "4.1/not-yet-valid",
        "Which text answers an authorization whose validAfter has not passed?",
        "`Invalid signature` with `reason` `Authorization not yet valid`",
        "A sixth text; `Authorization expired`",
        "It is one of the five texts, and its resolution (generate a new header) is the right one",
    ),
    Decision(
        "4.1/longest-window",
        "How far ahead may the validBefore of an authorization be?",
        "A day (the setting `longest_window_s`), or twice maxTimeoutSeconds if that is more. One "
        "that lasts longer is an `Invalid signature` with a `reason` that names both times",
        "Any time",
        "One that nobody has paid is asked about until then: a key without money costs nothing",
    ),
    Decision(
        "4.1/expired-requirements",
        "What answers a settlement that comes after maxTimeoutSeconds?",
        "`Authorization expired`, with a `reason` that names the requirements",
        "A text of its own",
        "The remedy is the same (start again), and it is one of the five texts",
    ),
    Decision(
        "4.1/settlement-failed",
        "What answers a transfer that was mined but reverted, or was refused for another reason?",
        "502 `Settlement failed` with the facilitator's `reason`; its authorization is still "
        "valid, so the payment stays `pending` until it is used or can no longer be",
        "`Invalid signature`",
        "None of the five causes is true of it (a paused token, a blacklisted payer)",
    ),
    Decision(
        "4.4/bad-session-body",
        "Does an invalid session request answer 402 or 400?",
        "400: the body sets the price, so it is validated before the payment gate",
        "402 for some default price",
        "There is no price to ask for",
    ),
    Decision(
        "4.4/max-spend",
        "How exact is `maxSpend`?",
        "Digits, a point, exactly two fraction digits; converted without floats; above zero",
        "Any decimal",
        "The form the specification shows, read strictly, so that no cent is ever rounded",
    ),
    Decision(
        "4.4/deposit-resource",
        "Which resource does a deposit's 402 name?",
        "`/api/sessions/create`; amount and duration are bound into the payment id",
        "A path with the session's id",
        "The path of the protected endpoint, as 2.1 says; the repeated body can change nothing",
    ),
    Decision(
        "4.4/deposit-payee",
        "Who receives a deposit?",
        "The server wallet, also where another merchant address is set",
        "The merchant address",
        "Whoever holds the deposit must be able to refund it",
    ),
    Decision(
        "2.6/session-start",
        "When does a session begin?",
        "When its deposit settles, in the same database transaction",
        "When the request is repeated",
        "A payer who never comes back is still refunded at expiry",
    ),
    Decision(
        "3/refund",
        "How is the unspent balance refunded?",
        "The server wallet signs an EIP-3009 transfer whose nonce is derived from the session id",
        "An ordinary transfer",
        "The token itself then refuses a second refund, even after a crash",
    ),
    Decision(
        "3/statuses",
        "Which statuses exist besides `settled`?",
        "Payments `pending`, `settled`, `failed`; sessions `active`, `expired`, `refunded`",
        "More steps",
        "They differ in what is allowed: to grant access, to debit, to refund",
    ),
    Decision(
        "3/indexed-status",
        "Which status does the indexer write?",
        "It leaves a successful record `settled` and marks a reverted one `failed`",
        "`confirmed`",
        "Any other value would end the entitlement, whose condition is `settled`",
    ),
    Decision(
        "3/reverted-payment",
        "What becomes of a payment whose transaction turns out to have reverted?",
        "It is `failed`, grants no more, and a session that it paid for ends without refund",
        "Access once granted stays",
        "Granted only if money moved",
    ),
    Decision(
        "8/final-depth",
        "When is a payment or a refund looked at for the last time?",
        "When its block has 12 blocks on top (the setting `final_depth`); until then each run of "
        "the indexer looks again, before the batch of section 8, and follows a reorganisation",
        "Once it has a block number",
        "A reorganisation can undo a transfer that was in a block",
    ),
    Decision(
        "4.1/submitted-by-others",
        "Does a payer get access if a third party submitted the authorization?",
        "Yes, if the chain shows it as unused when it is presented here. One that was used before "
        "is refused: it may have paid at another service of the same merchant. Two services that "
        "are presented one authorization before its transfer is in a block cannot tell: services "
        "with one merchant address need one database",
        "Only if this service's facilitator submitted it",
        "The merchant has the money, and the payer must not lose it",
    ),
    Decision(
        "4.1/silent-node",
        "What becomes of a payment while the chain's node does not answer?",
        "502 and `final: false`, and nothing is sent to the facilitator: without the node nobody "
        "knows whether the authorization was used before. Sent again later, it is settled",
        "It is settled, and looked up afterwards",
        "If the answer of the facilitator were lost too, the service could not tell who was paid",
    ),
    Decision(
        "4.1/claim-kept",
        "What becomes of a header that was refused but may still be used?",
        "Its claim stays, and the answer says `final: false`, until a block shows that it was used "
        "or can never be. Sent again, it is settled. Another header for the id is accepted, 8 at "
        "most, unless the facilitator may have sent the first",
        "It is forgotten",
        "Anybody who has seen the authorization can submit it, and the payer must not pay twice",
    ),
    Decision(
        "5/one-step",
        "Is a payment in the request itself taken, as the x402 standard sends it?",
        "Yes, in X-PAYMENT (version 1) and PAYMENT-SIGNATURE (version 2), unless the setting "
        "`one_step` is off. It is settled as by POST /api/pay, under a payment id that is derived "
        "from the authorization, so two authorizations are two purchases, of one 402, too. "
        "Unreadable is 400; readable and wrong is 402 with a `reason`",
        "Only POST /api/pay settles; or a 402 is paid once, if its payer shows its id",
        "Unmodified clients of the standard can pay, and the 402 of section 2.2 stays what it is. "
        "A payment of the standard names no 402: it repeats only what was accepted, and payers "
        "that share a 402, such as through a cache, pay each for themselves",
    ),
    Decision(
        "5/offered-id",
        "How does a payer in one step get what it paid for, if the answer is lost on the wire?",
        "By the payment id of the 402 that it has paid, in X-Payment-Id. Version 2 sends that id "
        "back as `accepted.extra.paymentId`; in version 1, X-Payment-Id beside X-PAYMENT names it",
        "By a message signed with the payer's key; or not at all",
        "The payer has the id before anything can be lost, and whoever reads the authorization on "
        "the chain does not know it",
    ),
    Decision(
        "5/payment-identifier",
        "What does a payment's id in the extension payment-identifier do?",
        "A payment of version 2 that names itself gets its answer again, receipt included, while "
        "its authorization could still be used, and at least as long as a 402 can be paid, across "
        "restarts, and without a look at the chain. "
        "It counts as served for everybody else. Sent again while it is answered, it is 409 and "
        "not final. Another payment with the same id is 409, an id of the wrong form is 402. The "
        "facilitator keeps no answers",
        "It is ignored; or the facilitator repeats its answer, too",
        "What was lost on the wire is got again by the standard's own way. A facilitator that says "
        "`success` twice lets a shop that counts on it serve one payment twice",
    ),
    Decision(
        "5/payment-flow",
        "When is a payment in one step verified and settled, and when does the endpoint work?",
        "The endpoint works, then it is verified and settled, then the answer goes out: what is "
        "refused costs nothing. `Settings(payment_flow=...)` says and does what the standard calls "
        '"authorization" (verify, work, settle) or "upfront" (settle, work). An endpoint that '
        "fails after an upfront settlement answers with the receipt beside its error, and the same "
        "payment stays good for one answer",
        'Always "upfront", as in two steps',
        "The standard prefers that nobody is charged before the work is done; it knows no refund",
    ),
    Decision(
        "4.4/deposit-two-steps",
        "Can a deposit be paid in one step, too?",
        "No: its 402 offers POST /api/pay only",
        "Yes",
        "A session id is money, and an authorization can be read on the chain",
    ),
    Decision(
        "2.4/timestamp",
        "In which form are times stored?",
        "Integers: epoch milliseconds, as in the receipt",
        "ISO 8601 text",
        "One unit on the wire and in the store",
    ),
    Decision(
        "2.7/agent",
        "Which fields does an agent have?",
        "id, name, description, resource, price, payTo, reputation",
        "Anything",
        "What a buyer needs to choose and to pay",
    ),
    Decision(
        "4.2/quote-model",
        "Where do quotes come from?",
        "A synthetic market: a fixed function of the pair, the same for every request",
        "A live price feed",
        "Reproducible, offline, and never mistaken for advice",
    ),
    Decision(
        "6/reputation",
        "What is an agent's reputation?",
        "The number of settled payments for its resource that the indexer has found in a block",
        "A score",
        "It can be recomputed from the records, so it can be checked",
    ),
    Decision(
        "7/error-body",
        "Which shape do errors other than 402 have?",
        '`{"error": text}`, with a `reason` where there are details',
        "RFC 9457 problem details",
        "The shape of the 402's own error field",
    ),
    Decision(
        "7/final",
        "How does a payer learn whether a refused payment may still be made?",
        "By `final` in every settlement error: `true` if this attempt charged nothing and "
        "never will, `false` if it may still be paid",
        "By the words of `reason`",
        "A program reads a field; words change",
    ),
    Decision(
        "2.8/mainnet-domain",
        "Which EIP-712 domain version does the mainnet token use?",
        "2, as in the TypeScript client library's fix of January 2026",
        "1, as in the documentation's table",
        "The fix is the newest source; the token's `version()` decides on a real chain",
    ),
    Decision(
        "4.1/what-verify-checks",
        "Does the facilitator's verify check the window, the nonce or the balance?",
        "No: scheme, network, asset, recipient, amount and signature; settle finds the rest",
        "A simulated call",
        "Its documentation lists no such reason for verify, and shows them as settle failures",
    ),
    Decision(
        "8/rate-limits",
        "Are there rate limits?",
        "None, neither in the service nor in the mock facilitator",
        "The public facilitator's 10 verifications and 5 settlements a minute",
        "A local mock that throttles its only user tests nothing",
    ),
)
