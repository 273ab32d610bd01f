"""The text of `--help` of each command, in the order of the list. No command is imported for it."""

HELP = {
    "serve": """Start a local mock server: a whole world on one port.

Service at `/`, facilitator at `/facilitator`, explorer at `/explorer`, the chain's JSON-RPC at
`/rpc`, the control API at `/_sim`. Ten accounts are funded, those that users of anvil and
Hardhat know. Ctrl-C stops the server. The log goes to stderr.

With `--chain URL`, X402SIM_CHAIN_KEYS lists private keys, separated by commas: the first pays
for gas, and a minter's key, if listed, mints for payers.
""",
    "demo": "Pay for a quote through every component, and print each step.",
    "pay": """Pay for a request: a curl that answers a 402.

It sends the request, signs what the 402 demands, pays, and prints the answer's body to stdout,
and each step before it to stderr. Without --key it pays from account 0 of `serve`.

\b
Example: x402sim pay http://127.0.0.1:4020/api/perp/quote
  -d '{"pair":"BTC-USD","side":"long","leverage":10,"sizeUsd":1000}'

`--wrong amount` shows what a server answers to that mistake, and what to do about it.

It pays the first offer that it can pay, and says why it left out those before. The last line
names the transaction of the receipt; or it says that the payment was signed and not confirmed,
and until when it can be used.

With --state-dir you may end it at any time, and start it again: it sends the signed payment
again, and signs no other. What is free then counts as bought.

Exit code: 0 if it was signed and served (with --wrong: refused); 1 if not; 2 if nothing was
signed.
""",
    "decode": """Decode any message of a payment, and say what is wrong in it.

It reads payments, 402s, payment requirements and receipts, of our two steps (which are
Cronos') and of the x402 standard, versions 1 and 2; requests and answers of a facilitator
(verify, settle, supported, discovery); and these inside messages of MCP and A2A. They may be
JSON, base64 or 0x-hex, a header line, or a whole HTTP answer. It recovers the signer of a
payment, and compares the payment with the requirements beside it.

It ignores offers for other payers (another chain, scheme or token).

Example: curl -si URL | x402sim decode -

Exit code: 0 if nothing is wrong; 1 if something is, or a receipt says that nothing was paid; 2 if
it cannot be read.
""",
    "doctor": """Say who could pay a URL, and what would stop them.

It pays nothing. It sends one request and reads the 402: each offer, what is wrong with it, and
whether a payer in two steps, the public clients of the x402 standard and `PaymentAuth` would
pay with their defaults: the tokens and networks that they know, and what they spend at most.
It ignores offers for other payers (another chain, scheme or token). If the 402 offers two steps,
it sends an empty object to POST /api/pay, to find out whether that exists.

Example: x402sim doctor http://127.0.0.1:4020/api/perp/quote --method POST

Exit code: 0 if somebody could pay, 1 if nobody, 2 if there was no answer.
""",
    "watch": """Record the payments that pass to a service or a facilitator.

A reverse proxy: requests and answers pass unchanged, but for `Host`. Each payment is a lane of
the page, and a line of the log: what was offered, signed, settled and served, and what is wrong
in it by the rules of `decode` and `doctor`.

Example: x402sim watch --upstream http://127.0.0.1:8000, and pay at http://127.0.0.1:4030

Give the shop `--facilitator`'s URL, and verify and settle are seen, too. Payments of real money
are hidden without --allow-mainnet, and their signatures are never kept. Faults strike once an offer or
a payment has shown that the shop is on a test network.
""",
    "list": """List the scenarios, or show some in full.

Each scenario has a title, the clauses of the specification that it covers (see
`clauses`), and needs: what the stage must offer, such as control of the clock. The
stages in-process and tcp offer everything; a service behind a URL offers what its
control API `/_sim` does, and nothing without one. With a NAME, the output has the
description, the clauses, the needs and the file.
""",
    "run": """Play scenarios, and check them against the specification.

A scenario is a short script: payers request, sign, pay and misbehave, faults occur, time
passes, and the money is counted on the chain. In-process and over tcp, time is virtual (a day
passes in moments), and the same seed gives the same journal, byte for byte. A scenario is
skipped if the stage or the chain lacks what it needs.

Exit codes: 0, every check held; 1, a check failed, and the output shows its clause,
the expected and the actual value, and the command that repeats it, or a scenario has no
checks; 2, wrong usage, or no scenario ran. `--json` prints seed, combined_sha256, clock_ahead_s
and scenarios, each with its journal_sha256; combined_sha256 is the SHA-256 of the list of these
hashes, one per line.

At a URL, scenarios that take time advance the server's clock, and it stays ahead: payers with a
right clock are refused there afterwards. clock_ahead_s says by how much, and a reset with
{"clock": true} gives the time back.

With `--chain URL`, X402SIM_CHAIN_KEYS lists private keys, separated by commas: the first
pays for gas, and a minter's key, if listed, mints for payers.

\b
Examples:
  x402sim run replay
  x402sim run --out report
  x402sim run mine.py:story --latency facilitator=0.2,0.5 --block-time 5
  x402sim run mine.py:story --on http://127.0.0.1:4020
""",
    "open": """Show a saved run in a browser: its payments, sessions and transactions.

It serves the page that `serve` has at /_sim/ui, on this machine only, until Ctrl-C, and prints
its URL. `run --out DIR` saves runs, one folder for each scenario.

\b
Example: x402sim open out/replay
""",
    "diff": """Show the first event in which two journals differ.

`run --out DIR` writes `DIR/NAME/journal.ndjson` for each scenario; with the same seed
and the same code two journals are equal, byte for byte. If they differ, start at the
first event that differs: later differences follow from it. The output shows the events
before it, and every field that differs.

Exit codes: 0, the journals are equal; 1, they differ; 2, a file is not a journal.
""",
    "events": """Show every event that a journal can hold, with its fields.

Example: x402sim events payment "session opened"
""",
    "sweep": """Play an experiment for every combination of values and seeds.

It summarizes the results. An experiment is a plain function of its parameters and `seed`,
which returns a number, a dict of numbers, or a DataFrame (see `help(x402sim.sweep)`).
Values are numbers, true, false, null or texts. All cells play the same seeds (common random
numbers). The summary has means with 95 % confidence intervals: a bootstrap, or Wilson's for
results that are true or false. It counts seeds, as rows of one seed may depend on each other; if
you know that they do not, give --unit row.

With --out, DIR keeps one Parquet file a task, so that an interrupted sweep goes on with the
same command. Later calls may add values and seeds: results.parquet has all rows in DIR, and
summary.csv summarizes them; the printed table has the values of this call. If anything has
changed that results depend on, such as a global variable, the command refuses and names it;
--fresh begins anew.

Exit code 1: at least one point failed; the output has its error, and the line that replays it.

\b
Examples:
  x402sim sweep study.py:delay --set rate=0.1,0.5,2 --set limit=60 --seeds 200
  x402sim sweep study.py:delay --set rate=1 --dask tcp://10.0.0.1:8786 --out DIR
""",
    "reproduce": """Repeat a saved run or sweep, and compare it hash by hash.

FOLDER is that of `run.save(folder, bundle=True)`, or of a sweep (`out=`, `--out`). Its program
runs again, in a copy of its sources, to the call that saved the result: THIS RUNS CODE FROM THE
FOLDER, with your rights, as a stranger's notebook does. Read `sources/` first.

It compares the journal and each frame of a run, and of a sweep the results and the journals of
each point, or of some that are drawn. It names what differs, and where; other versions of Python,
x402sim and libraries are notes, not failures.

Exit code: 0 if all is the same; 1 if something differs; 2 if it cannot be repeated, with what
to do.
""",
    "conformance": """Check a running service against the specification.

With the URL alone, the suite tests statuses, message shapes and payment checks, and pays
nothing. With `--payer-key`, it also checks payments, bindings, replays and sessions; it
prints its plan first, leaves out what does not fit `--budget`, and never exceeds it. With
`--world`, it also injects faults and counts money on the ledger; the world
(`x402sim serve --no-service`) is then the service's facilitator, explorer and chain, and
mints what payers need. A service with other paths or other messages needs a target file:
`x402sim target init URL` writes it.
""",
    "service": """Start the service only, against an external world.

The world is a facilitator, an explorer and a node. Environment variables configure it:
PRIVATE_KEY (the server wallet, which receives deposits and pays refunds), FACILITATOR_URL,
EXPLORER_URL and RPC_URL are required; NETWORK (--network replaces it), MERCHANT_ADDRESS,
TOKEN_ADDRESS and FINAL_DEPTH (blocks on top of a payment until a reorganisation is not
expected: 12) have defaults.
`serve --no-service` prints the settings for a simulated world. Ctrl-C stops the service.
The log goes to stderr.
""",
    "facilitator": """Start the facilitator only, on a node of yours.

It speaks the x402 standard, versions 1 and 2, and the dialect of Cronos, verifies and settles
on the network's token, and pays the gas. X402SIM_PRIVATE_KEY (or PRIVATE_KEY, EVM_PRIVATE_KEY)
is the key of its account; X402SIM_RPC_URL (or RPC_URL, EVM_RPC_URL), PORT and
X402SIM_NETWORK_NAME stand in for --rpc, --port and --network. If a transaction is not mined in
time, the answer is pending, with its hash. Ctrl-C stops it.

Example: X402SIM_PRIVATE_KEY=0x... x402sim facilitator --rpc http://127.0.0.1:8545
  --network base-sepolia
""",
    "decisions": """List our decisions where the specification is silent.

Example: x402sim decisions 4.1 7/final
""",
    "clauses": """List the clauses of the specification, and what keeps each.

Example: x402sim clauses 5 7/nonce
""",
    "target": "Write a target file, for a service that differs from ours.",
    "target init": """Examine a service without paying it, and write how it differs to a target file.

Each key says how its value was found; keys that only a payment would show are comments. A
server of the x402 standard needs no target file: the output is then the command that judges it.
""",
}
"""The help of each command: its first sentence is that of the list. A backspace (`\\b`) begins a
paragraph that is shown as it is."""
