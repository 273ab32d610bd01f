"""The `--help` of each command, in the order of the list, kept here so that the list imports no
command.
"""

HELP = {
    "serve": """Start a local mock server: a whole world on one port.

Service at `/`, facilitator at `/facilitator`, explorer at `/explorer`, the chain's JSON-RPC at
`/rpc`, the control API at `/_sim`, a page at `/_sim/ui`. It funds the ten accounts of anvil and
Hardhat. The log goes to stderr. Ctrl-C stops the server.

Example: x402sim serve --sell "GET /weather 0.01"
""",
    "fault": """Add a fault to a running `serve`, list the faults, or clear them.

Example: x402sim fault add service "lose answer" path=/api/pay times=1
""",
    "advance": """Move the clock of a running `serve` forward, and run what is due.

Example: x402sim advance 1h
""",
    "mine": "Mine blocks on the chain of a running `serve`.",
    "accounts": "List the accounts of a running `serve`, with their private keys.",
    "payments": """List the settled payments of a running `serve`, and demand a number of them.

Example: x402sim payments /api/perp/quote --times 1

Exit codes: 0, it has so many; 1, it has another number; 2, the server refused or did not answer.
""",
    "demo": "Pay for a quote through every component, and print each step.",
    "pay": """Pay for a request: a curl that answers a 402.

Sends the request, signs the payment that the 402 demands, and pays. The answer's body goes to
stdout, each step to stderr. Without --key, account 0 of `serve` pays.

Example: x402sim pay http://127.0.0.1:4020/api/perp/market

`pay` takes the first payable offer, and does not trust the server: it signs for the tokens of
cronos-testnet, base-sepolia, avalanche-fuji and your --network-file, by this machine's clock, for
at most 300 s. The last line names the transaction, or says until when the payment can be used.

With --state-dir you may stop `pay` at any time and start again: it sends the same payment, and
signs no other. Of several starts at once the first pays.

Exit codes: 0, signed and served (with --wrong: refused); 1, signed and not served; 2, nothing was
signed; 75, another start with the same --state-dir has not ended: start again.
""",
    "decode": """Decode any message of a payment, and say what is wrong in it.

It reads 402s, payments, receipts, and the messages of a facilitator, in two steps (as Cronos has
them) and of the x402 standard, also inside messages of MCP and A2A. The text may be JSON, base64,
0x-hex, a header line, or a whole HTTP answer. `decode` recovers the signer of a payment, and
compares the payment with the requirements beside it.

Example: curl -si URL | x402sim decode -

Exit codes: 0, nothing is wrong; 1, something is wrong, or a receipt says that nothing was paid;
2, the text cannot be read.
""",
    "doctor": """List the clients that could pay a URL, and the obstacles for the others.

`doctor` sends one request, pays nothing, and lists each offer of the 402 with the defects. Then it
says whether a two-step payer, the public clients of the x402 standard and `PaymentAuth` would pay
with their defaults. To an offer in two steps, it also sends an empty object to POST /api/pay.

Example: x402sim doctor http://127.0.0.1:4020/api/perp/quote --method POST

Exit codes: 0, somebody could pay; 1, nobody could, or --index does not list it; 2, the server did
not answer.
""",
    "watch": """Record the payments that pass to a service or a facilitator.

It is a reverse proxy: requests and answers pass unchanged, except for `Host`. The page and the log
show each payment, with the errors by the rules of `decode` and `doctor`.

Example: x402sim watch --upstream http://127.0.0.1:8000, and pay at http://127.0.0.1:4030

Signatures of real money are never stored. Faults strike on test networks only.
""",
    "list": """List the scenarios, or show some in full.

With a NAME, the output has the description, the clauses, the needs and the file.

""",
    "run": """Play scenarios, and check them against the specification.

A scenario is a short script: payers pay and misbehave, faults occur, time passes, and the money is
counted on the chain. In-process and over tcp, time is virtual, and the same seed gives the same
journal, byte for byte. For a failed check, the output shows the clause, the expected and the actual
value, and the command that repeats the check. `combined_sha256` of --json is the SHA-256 of the
journals' hashes, one per line.

At a URL that cannot fund payers, the key in X402SIM_PAYER_KEY pays, at most --budget in the whole
command. Scenarios that take time leave the server's clock ahead; a reset with {"clock": true} sets
it back.

Example: x402sim run replay --out report

Exit codes: 0, every check held; 1, a check failed, or a scenario made no check; 2, wrong usage, or
no scenario ran.
""",
    "open": """Show a saved run in a browser.

Serves the page of `serve` at the printed URL, for this machine only, until Ctrl-C.

Example: x402sim open out/replay
""",
    "diff": """Show the first event in which two journals differ.

The same seed and the same code give equal journals, byte for byte. The output shows the events
before the first difference, and every field that differs.

Exit codes: 0, the journals are equal; 1, they differ; 2, a file is not a journal.
""",
    "sweep": """Play an experiment for every combination of values and seeds.

An experiment is a plain function of its parameters and `seed`. It returns a number, a dict of
numbers, or a DataFrame (see `help(x402sim.sweep)`). Values are numbers, true, false, null or
texts. All cells play the same seeds. The printed means have 95 % confidence intervals over seeds.

With --out, DIR keeps results.parquet with all rows, summary.csv, and points/ with a file for each
task; the same command resumes an interrupted sweep, and later calls may add values and seeds.

Example: x402sim sweep study.py:delay --set rate=0.1,0.5,2 --seeds 200

Exit code 1: a point failed; the output has the error and the command to replay the point.
""",
    "reproduce": """Repeat a saved run or sweep, and compare it hash by hash.

FOLDER is that of `run.save(folder, bundle=True)`, or of `sweep --out`. THIS RUNS CODE FROM THE
FOLDER, with your rights: read `sources/` first. It compares journals, frames and results, and
prints what differs, and where. Other versions of libraries are notes, not failures.

Exit codes: 0, all is the same; 1, something differs; 2, the result cannot be repeated.
""",
    "conformance": """Check a running service against the specification.

Other judges, each with options of its own (`--help`): `conformance payer` (payers and agents),
`conformance facilitator`, `conformance server` (the x402 standard), `conformance vectors` (any
implementation, by an adapter). `conformance campaign --keep FILE` judges published versions, and
`conformance site` makes pages of their verdicts.

Example: x402sim conformance http://127.0.0.1:8000 --report report.html

With the URL alone, the suite pays nothing. With --payer-key, it tests payments, replays and
sessions, too, within --budget. With --world, it also injects faults and counts money on the ledger:
the world (`serve --no-service`) is then the service's facilitator, explorer and chain, and funds
payers. A service with other paths or messages needs a target file (`x402sim target init URL`).
""",
    "service": """Start the service only, against an external world.

Required in the environment: PRIVATE_KEY (the server wallet), RPC_URL and, without --facilitator,
FACILITATOR_URL and EXPLORER_URL. With defaults: NETWORK, MERCHANT_ADDRESS, TOKEN_ADDRESS and
FINAL_DEPTH (a payment is final under so many blocks: 12). `serve --no-service` prints the settings
for a simulated world.
""",
    "facilitator": """Start the facilitator only, on your node.

It speaks the x402 standard, versions 1 and 2, and the dialect of Cronos, and pays the gas from the
account of X402SIM_PRIVATE_KEY (or PRIVATE_KEY, EVM_PRIVATE_KEY). X402SIM_NETWORK_NAME replaces
--network. If a transaction is not mined in time, the answer is "pending" with its hash.

Example: x402sim facilitator --rpc http://127.0.0.1:8545 --network base-sepolia
""",
    "target": "Write a target file, for a service that differs from ours.",
    "target init": """Write a target file for a service, without paying it.

In the file, each key says how its value was found; keys that only a payment would show are
comments. For a server of the x402 standard, the output is the command to judge it.
""",
}
"""The help of each command; the list shows its first sentence. A backspace (`\\b`) keeps the lines
of a paragraph as they are."""
