"""The `--help` of each command, in the order of the list, kept here so that the list imports no
command.
"""

HELP = {
    "serve": """Start a local mock server: a whole world on one port.

Service at `/`, facilitator at `/facilitator`, explorer at `/explorer`, the chain's JSON-RPC at
`/rpc`, the control API at `/_sim`. It funds the ten accounts of anvil and Hardhat. Ctrl-C stops the server. The log goes to stderr.

With `--chain URL`, X402SIM_CHAIN_KEYS lists private keys, separated by commas: the first pays
for gas, and a minter's key, if listed, mints for payers.
""",
    "fault": """Add a fault to a running `serve`, list the faults, or clear them.

\b
Example: x402sim fault add service "lose answer" path=/api/pay times=1
""",
    "advance": """Move the clock of a running `serve` forward, and run what is due.

Example: x402sim advance 1h
""",
    "mine": "Mine blocks on the chain of a running `serve`.",
    "accounts": """List the accounts of a running `serve`, with their private keys.

`--failing` makes accounts that fail in fixed ways: no balance, blacklisted, a
contract wallet, a used nonce.
""",
    "payments": """List the settled payments of a running `serve`, and demand a number of them.

Example: x402sim payments /api/perp/quote --times 1

Exit codes: 0, it has so many; 1, it has another number; 2, the server refused or did not answer.
""",
    "demo": "Pay for a quote through every component, and print each step.",
    "pay": """Pay for a request: a curl that answers a 402.

Sends the request, signs the payment that the 402 demands, and pays. The answer's body goes to
stdout, each step to stderr. Without --key, account 0 of `serve` pays.

\b
Example: x402sim pay http://127.0.0.1:4020/api/perp/quote
  -d '{"pair":"BTC-USD","side":"long","leverage":10,"sizeUsd":1000}'

`--wrong amount` shows a server's answer to the mistake, and the remedy.

`pay` takes the first payable offer, and prints why earlier offers were skipped. The last
line names the transaction of the receipt. If no receipt confirms the payment, the last line says
until when the signed payment can still be used.

`pay` does not trust the server: it signs for the tokens of cronos-testnet, base-sepolia,
avalanche-fuji and your --network-file, by this machine's clock, for at most 300 s; on a main
network, with real money, only with --network NAME. If you have started `serve` and advanced its
clock, or chosen your own token, add --world http://127.0.0.1:4020. With --key, a token of your own
needs --network-file, too.

With --permit2 it pays offers by Permit2, too, if no other fits: of the scheme `upto` it signs the
maximum, within --max. It approves nothing: a server that misses the approval of Permit2 answers
412, and the last line says how much to approve.

With --state-dir you may stop `pay` at any time and start again: `pay` sends the same signed payment
and signs no other. Of several starts at once the first pays; the rest wait, and print the purchase,
or go on with the same payment. A free request then counts as bought.

Exit codes: 0, the payment was signed and the request served (with --wrong: refused); 1, signed and
not served; 2, nothing was signed; 75, another start with the same --state-dir did not end in time,
and nothing was signed here: start again.
""",
    "decode": """Decode any message of a payment, and say what is wrong in it.

It reads 402s, payment requirements, payments and receipts, in two steps (as Cronos has them) and
of the x402 standard, versions 1 and 2. It reads requests to a facilitator and the answers (verify,
settle, supported, discovery), and every such message inside messages of MCP and A2A. The text
may be JSON, base64, 0x-hex, a header line, or a whole HTTP answer. `decode` recovers the signer of
a payment, and compares the payment with the requirements beside it.

It ignores offers for other payers (another chain, scheme or token).

Example: curl -si URL | x402sim decode -

Exit codes: 0, nothing is wrong; 1, something is wrong, or a receipt says that nothing was paid;
2, the text cannot be read.
""",
    "doctor": """List the clients that could pay a URL, and the obstacles for the others.

`doctor` pays nothing. It sends one request, and lists each offer of the 402 with the defects.
Then it says whether a two-step payer, the public clients of the x402 standard and `PaymentAuth`
would pay with their defaults: their networks, tokens and spending limits. It ignores offers for
other payers (another chain, scheme or token). If the 402 offers two steps, `doctor` also sends an
empty object to POST /api/pay, to see whether that path exists.

If the 402 declares its resource for the Bazaar, `doctor` says why no index would list the resource,
and with --index whether that index does.

Example: x402sim doctor http://127.0.0.1:4020/api/perp/quote --method POST

Exit codes: 0, somebody could pay; 1, nobody could, or --index does not list it; 2, the server did
not answer.
""",
    "watch": """Record the payments that pass to a service or a facilitator.

It is a reverse proxy: requests and answers pass unchanged, except for `Host`. The page and the log
show each payment: the offer, the signature, the settlement and the answer, with the errors by the
rules of `decode` and `doctor`.

Example: x402sim watch --upstream http://127.0.0.1:8000, and pay at http://127.0.0.1:4030

With --facilitator, configure the shop to use the printed URL, to record verify and settle, too.
Without --allow-mainnet, payments of real money are hidden; signatures of real payments are never
stored. Faults strike only after an offer or a payment has named a test network.
""",
    "list": """List the scenarios, or show some in full.

A scenario covers clauses of the specification, and has needs: the stage must offer them, such as
control of the clock. The stages in-process and tcp meet all needs. A service behind a URL meets
the needs that its control API `/_sim` serves. With a NAME, the output has the description, the
clauses, the needs and the file.
""",
    "run": """Play scenarios, and check them against the specification.

A scenario is a short script: payers request, sign, pay and misbehave, faults occur, time
passes, and the money is counted on the chain. In-process and over tcp, time is virtual (a day
passes in moments), and the same seed gives the same journal, byte for byte. A scenario is
skipped if the stage or the chain lacks what it needs.

Exit codes: 0, every check held; 1, a check failed, or a scenario made no check; 2, wrong usage, or
no scenario ran. For a failed check, the output shows the clause, the expected and the actual value,
and the command that repeats the check. `--json` prints seed, combined_sha256, clock_ahead_s and
scenarios, each with its journal_sha256; combined_sha256 is the SHA-256 of these hashes, one per
line.

At a URL that cannot fund payers, the key in X402SIM_PAYER_KEY pays: at most `--budget` in the whole
command, by the time of this machine, and with real money only if you give `--allow-mainnet`.

At a URL, scenarios that take time advance the server's clock, and leave it ahead by clock_ahead_s:
afterwards the server refuses payers whose clock is right. A reset with {"clock": true} sets the
clock back.

With `--chain URL`, X402SIM_CHAIN_KEYS lists private keys, separated by commas: the first
pays for gas, and a minter's key, if listed, mints for payers.

\b
Examples:
  x402sim run replay
  x402sim run --out report
  x402sim run mine.py:story --chain anvil
  x402sim run mine.py:story --on http://127.0.0.1:4020
""",
    "open": """Show a saved run in a browser.

`open` prints a URL, and serves there, for this machine only and until Ctrl-C, the page of `serve` at
/_sim/ui (payments, sessions and transactions). `run --out DIR` saves runs, one folder for each
scenario.

\b
Example: x402sim open out/replay
""",
    "diff": """Show the first event in which two journals differ.

`run --out DIR` writes `DIR/NAME/journal.ndjson` for each scenario. The same seed and the same code
give equal journals, byte for byte. If two journals differ, look at the first event that differs:
later differences follow from it. The output shows the events before it, and every field that
differs.

Exit codes: 0, the journals are equal; 1, they differ; 2, a file is not a journal.
""",
    "sweep": """Play an experiment for every combination of values and seeds.

An experiment is a plain function of its parameters and `seed`. It returns a number, a dict of
numbers, or a DataFrame (see `help(x402sim.sweep)`). Values are numbers, true, false, null or
texts. All cells play the same seeds (common random numbers).

The printed summary has means with 95 % confidence intervals: a bootstrap, or Wilson's for results
that are true or false. The intervals count seeds, as rows of one seed may depend on each other; if
you know that rows are independent, give --unit row.

With --out, DIR keeps results.parquet with all rows, summary.csv with the summary, and points/
with a file for each task; the same command resumes an interrupted sweep. Later calls may add
values and seeds; the printed table has the values of this call only. If something changed that
results depend on, such as a global variable, the command names it and stops; --fresh starts over.

Exit code 1: at least one point failed; the output has the error and the command to replay the point.

\b
Examples:
  x402sim sweep study.py:delay --set rate=0.1,0.5,2 --set limit=60 --seeds 200
  x402sim sweep study.py:delay --set rate=1 --dask tcp://10.0.0.1:8786
""",
    "reproduce": """Repeat a saved run or sweep, and compare it hash by hash.

FOLDER is that of `run.save(folder, bundle=True)`, or of a sweep (`out=`, `--out`). The saved
program runs again, in a copy of its sources, up to the call that saved the result. THIS RUNS CODE
FROM THE FOLDER, with your rights, as a stranger's notebook does: read `sources/` first.

Of a run, it compares the journal and each frame; of a sweep, the results and journals of each
point (or of --points). It prints what differs, and where. Other versions of Python, x402sim and
libraries are notes, not failures.

Exit codes: 0, all is the same; 1, something differs; 2, the result cannot be repeated: the output
says what to do.
""",
    "conformance": """Check a running service against the specification.

\b
Three more judges, each with options of its own (`--help`):
  x402sim conformance payer -- COMMAND         a payer or an agent
  x402sim conformance facilitator --start CMD  a facilitator
  x402sim conformance server ITEM --start CMD  a server of the x402 standard

`x402sim conformance site --out DIR` makes pages of verdicts on published versions, and
`x402sim conformance campaign --keep FILE` judges the versions.

With the URL alone, the suite tests statuses, message shapes and payment checks, and pays nothing.
With `--payer-key`, the suite also tests payments, bindings, replays and sessions. The suite prints
a plan first, leaves out checks that do not fit `--budget`, and never exceeds the budget. With `--world`, it also
injects faults and counts money on the ledger: the world (`x402sim serve --no-service`) is then the
service's facilitator, explorer and chain, and mints tokens for payers. A service with other paths
or other messages needs a target file, which `x402sim target init URL` writes.
""",
    "service": """Start the service only, against an external world.

Required in the environment: PRIVATE_KEY (the server wallet, which receives deposits and pays
refunds), RPC_URL and, without --facilitator, FACILITATOR_URL and EXPLORER_URL. With defaults:
NETWORK, MERCHANT_ADDRESS, TOKEN_ADDRESS and FINAL_DEPTH (a payment is final under so many blocks:
12). `serve --no-service` prints the settings for a simulated world. Ctrl-C stops the service. The
log goes to stderr.
""",
    "facilitator": """Start the facilitator only, on your node.

It speaks the x402 standard, versions 1 and 2, and the dialect of Cronos. It verifies and settles
payments in the network's token, and pays the gas from the account of X402SIM_PRIVATE_KEY (or
PRIVATE_KEY, EVM_PRIVATE_KEY). X402SIM_RPC_URL (or RPC_URL, EVM_RPC_URL), PORT and
X402SIM_NETWORK_NAME replace --rpc, --port and --network. If a transaction is not mined in time,
the facilitator answers "pending" with its hash. Ctrl-C stops it.

\b
Example: X402SIM_PRIVATE_KEY=0x... x402sim facilitator
  --rpc http://127.0.0.1:8545 --network base-sepolia
""",
    "target": "Write a target file, for a service that differs from ours.",
    "target init": """Write a target file for a service, without paying it.

It examines the service. In the file, each key says how its value was found; keys that only a
payment would show are comments. A server of the x402 standard needs no target file: the output is
then the command to judge the server.
""",
}
"""The help of each command; the list shows its first sentence. A backspace (`\\b`) keeps the lines
of a paragraph as they are."""
