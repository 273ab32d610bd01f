"""What a command says of words that it cannot use: what was seen, what is wanted, what to do."""

import shlex

import pytest

from tests.cli.runner import assert_misuse, run

ASKING = [f"{each} http://h" for each in ("conformance", "doctor", "pay")]
READING = [*ASKING, "demo", "run replay", "serve", "service"]
"""The commands that read a file of networks."""
WRONG = [
    *((f"{each} --network-file none.toml", "none.toml: No such file") for each in READING),
    ("conformance http://h --rate x", "'--rate': a number is wanted, not 'x'"),
    ("conformance http://h --seed x", "is wanted, not 'x'"),
    ("decode README.md", "it is the name of a file; read it with `decode - < README.md`"),
    ("decode http://shop/page", "it is a URL; `doctor URL` requests it, and examines its 402"),
    ("demo --seed 1e3", "is wanted, not '1e3'"),
    ("doctor http://127.0.0.1:1", "Connection refused; start it, for example with `x402sim serve`"),
    ("doctor shop", "'shop' is no URL with http:// or https://"),
    ("open http://127.0.0.1:4020", "a running server shows its page at /_sim/ui"),
    ("open j.ndjson", "there is no j.ndjson; `run --out DIR` saves runs"),
    ("open", "has no journal.ndjson; `run --out DIR` saves runs"),
    ("pay 127.0.0.1:1/x", "is no URL with http:// or https://; did you mean http://127.0.0.1:1/x?"),
    ("pay ftp://shop/x", "'ftp://shop/x' is no URL with http:// or https://"),
    ("pay http://", "is no URL"),
    ("pay http://127.0.0.1:1/x", "Connection refused; start it, for example with `x402sim serve`"),
    ("pay http://h --account -1", "'--account': a number from 0 on is wanted, not"),
    ("pay http://h --account 10", "--account 10: there are 10, from 0 to 9"),
    ("pay http://h --data @none.json", "--data @none.json: cannot read the file: No such file"),
    ("pay http://h --header abc", "--header 'abc': wanted 'Name: value'"),
    ("pay http://h --key 0x12", "--key: a private key is 0x and 64 hex digits, got 4 characters"),
    ("pay http://h --max much", "--max much: expected"),
    ("pay http://h --session --steps 1", "--session and --steps 1: a deposit takes two steps"),
    ("pay http://h --steps 3", "'--steps': a number from 1 to 2 is wanted, not 3"),
    ("pay http://h --steps two", "'--steps': a whole number is wanted, not 'two'"),
    ("pay http://h --wrong ammount", "unknown mistake 'ammount'; did you mean 'amount'?"),
    ("pay http://h --wrong amount --session", "--wrong and --session: give one of them"),
    ("run --block-time x", "'--block-time': a number is wanted, not 'x'"),
    ("run --explorer-lag -1", "'--explorer-lag': seconds from 0 on are wanted, not"),
    ("run --explorer-lag x", "'--explorer-lag': a number is wanted, not 'x'"),
    ("run --seed x", "'--seed': a whole number is wanted, not 'x'"),
    ("run qqqq", "unknown scenario 'qqqq'. `x402sim list` shows all names; or give a .py file"),
    ("run replai", "unknown scenario 'replai'; did you mean 'replay'?"),
    ("run replay nowhere.py", "no such file: nowhere.py"),
    (
        "run replay --latency service",
        "--latency: PART=SECONDS or PART=MEDIAN,SIGMA is needed, from",
    ),
    ("run replay --latency service=-1", "is needed, from 0 on, not 'service=-1'"),
    ("run replay --latency servce=1", "latency: unknown part 'servce'; did you mean 'service'"),
    ("run replay --on 127.0.0.1:4020", "did you mean http://127.0.0.1:4020?"),
    ("run replay --on http://", "http://HOST:PORT, with a port up to 65535"),
    ("run replay --on http://127.0.0.1:1 --json", "no answer from http://127.0.0.1:1"),
    ("run replay --on http://127.0.0.1:99999", "with a port up to 65535"),
    ("run replay --on in-proces", "did you mean 'in-process'?"),
    ("run replay --on moon", "unknown stage 'moon'. Possible: in-process, tcp, http://HOST:PORT"),
    ("serve --allow-origin localhost:3000", "--allow-origin 'localhost:3000'"),
    ("serve --allow-origin null", "--allow-origin 'null'"),
    *(
        (f"serve --block-time {x}", "a number from 0.01 to 86400")
        for x in ("0", "-1", "nan", "inf")
    ),
    ("serve --control-token ''", "the control token is empty"),
    ("serve --db /", "--db /: a file is wanted, and this is a folder"),
    ("serve --db no/such/folder.db", "--db no/such/folder.db: there is no folder no/such"),
    *(
        (f"{command} --db {name}", f"{name[:40]}")
        for command in ("serve", "service")
        for name in (":memory:", "file:x.db", "/dev/full", "/dev/null", "n" * 250)
    ),
    ("serve --deploy", "only on a node (`--chain URL`): ledger has its own"),
    ("serve --host 0.0.0.0x", "give an address of this machine: 127.0.0.1, or 0.0.0.0"),
    ("serve --host 203.0.113.7", "cannot listen on 203.0.113.7"),
    ("serve --log xml", "'--log': unknown form 'xml'. Possible: text, json"),
    ("serve --port 0 --mnemonic 'test test test'", "12 to 24 words of BIP-39"),
    ("serve --port 70000", "'--port': a number from 0 to 65535 is wanted, not 70000"),
    ("serve --tls no/ca.pem", "--tls no/ca.pem: cannot write the file: No such file or directory"),
    ("service --port -1", "from 0 to 65535 is wanted, not -1"),
    ("sweep a.py:f --workers 1.5", "a whole number is wanted, not '1.5'"),
    ("sweep a.py:f --workers 999", "a number from 0 to 256 is wanted, not 999"),
    ("sweep nothing.py:f", "no such file: nothing.py"),
]


@pytest.mark.parametrize(("words", "says"), WRONG)
def test_what_cannot_be_used_is_told_with_what_is_wanted(words: str, says: str) -> None:
    assert_misuse(run(*shlex.split(words)), says)
