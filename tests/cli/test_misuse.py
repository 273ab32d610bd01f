"""What a command says of words that it cannot use: what was seen, what is wanted, what to do."""

import shlex

import pytest

from tests.cli.runner import assert_misuse, run
from x402sim import cli

ASKING = [f"{each} http://h" for each in ("conformance", "doctor", "pay")]
READING = [*ASKING, "run replay", "serve", "service"]
"""The commands that read a file of networks."""
WRONG = [
    *((f"{each} --network-file none.toml", "none.toml: No such file") for each in READING),
    ("conformance http://h --rate x", "'--rate': a number is wanted, not 'x'"),
    ("conformance http://h --seed x", "is wanted, not 'x'"),
    ("decode README.md", "it is the name of a file; read it with `decode - < README.md`"),
    ("decode http://shop/page", "it is a URL; `doctor URL` requests it, and examines its 402"),
    ("doctor http://127.0.0.1:1", "Connection refused; start it, for example with `x402sim serve`"),
    ("doctor shop", "'shop' is no URL with http:// or https://"),
    ("doctor http://127.0.0.1:1 --index nowhere", "'nowhere' is no URL"),
    ("open http://127.0.0.1:4020", "a running server shows its page at /_sim/ui"),
    ("open j.ndjson", "there is no j.ndjson; `run --out DIR` saves runs"),
    ("open", "has no journal.ndjson; `run --out DIR` saves runs"),
    ("pay 127.0.0.1:1/x", "is no URL with http:// or https://; did you mean http://127.0.0.1:1/x?"),
    ("pay http://127.0.0.1:1/x", "Connection refused; start it, for example with `x402sim serve`"),
    ("pay http://h --account 10", "--account 10: there are 10, from 0 to 9"),
    ("pay http://h --arguments {}", "--arguments: they are a tool's; name it with --tool"),
    ("pay http://h --data @none.json", "--data @none.json: cannot read the file: No such file"),
    ("pay http://h --header abc", "--header 'abc': wanted 'Name: value'"),
    ("pay http://h --key 0x12", "--key: a private key is 0x and 64 hex digits, got 4 characters"),
    ("pay http://h --max much", "--max much: expected"),
    *(
        (f"pay http://h --permit2 {other}", "omit --session, --steps 2 and --wrong")
        for other in ("--session", "--steps 2", "--wrong amount")
    ),
    ("pay http://h --session --state-dir .", "--session and --state-dir"),
    ("pay http://h --session --steps 1", "--session and --steps 1: a deposit takes two steps"),
    ("pay http://h --steps 3", "'--steps': a number from 1 to 2 is wanted, not 3"),
    ("pay http://h --tool t --arguments [1]", "--arguments '[1]': wanted a JSON object"),
    ("pay http://h --tool t --data {}", "it has --arguments; omit --method and --data"),
    ("pay http://h --tool t --session", "a tool is paid in one step"),
    ("pay http://h --wrong ammount", "unknown mistake 'ammount'; did you mean 'amount'?"),
    ("pay http://h --wrong amount --session", "--wrong and --session: give one of them"),
    ("run qqqq", "unknown scenario 'qqqq'. `x402sim list` shows all names; or give a .py file"),
    ("run replai", "unknown scenario 'replai'; did you mean 'replay'?"),
    ("run replay nowhere.py", "no such file: nowhere.py"),
    ("run replay --on 127.0.0.1:4020", "did you mean http://127.0.0.1:4020?"),
    ("run replay --on http://", "http://HOST:PORT, with a port up to 65535"),
    ("run replay --on http://127.0.0.1:1 --json", "no answer from http://127.0.0.1:1"),
    ("run replay --on http://127.0.0.1:99999", "with a port up to 65535"),
    ("run replay --on in-proces", "did you mean 'in-process'?"),
    ("run replay --on moon", "unknown stage 'moon'. Possible: in-process, tcp, http://HOST:PORT"),
    ("serve --allow-origin localhost:3000", "--allow-origin 'localhost:3000'"),
    ("serve --body a.json", "it is the answer of a --sell"),
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
    *(
        (f"serve --facilitator {given}", says)
        for given, says in {
            "receipt_timeout=1": "'receipt_timeout'; did you mean 'receipt_timeout_s'",
            "receipt_timeout_s=0": "receipt_timeout_s: expected a number above 0, got 0",
            "receipt_timeout_s": "receipt_timeout_s: wanted a number, true or false, got ''",
            "simulates=no": "simulates: wanted a number, true or false, got 'no'",
            "simulates=0": "simulates: expected True or False, got 0",
            "servers=1.5": "servers: expected a whole number above 0 or None, got 1.5",
            "service_time_s=2": "give `servers`, such as servers=1",
        }.items()
    ),
    ("serve --host 0.0.0.0x", "give an address of this machine: 127.0.0.1, or 0.0.0.0"),
    ("serve --host 203.0.113.7", "cannot listen on 203.0.113.7"),
    ("serve --log xml", "'--log': unknown form 'xml'. Possible: text, json"),
    ("serve --no-service --sell '/a 1'", "a world with one service"),
    ("serve --openapi no.yaml", "No such file"),
    ("serve --port 0 --mnemonic 'test test test'", "12 to 24 words of BIP-39"),
    ("serve --port 70000", "'--port': a number from 0 to 65535 is wanted, not 70000"),
    ("serve --price '/a 1'", "for paths of an --upstream"),
    ("serve --sell weather", "such as `GET /weather 0.01`"),
    ("serve --tls no/ca.pem", "--tls no/ca.pem: cannot write the file: No such file or directory"),
    ("serve --upstream http://127.0.0.1:1", "without a --price nothing is sold"),
    ("serve --upstream ftp://a --price '/a 1'", "such as http://127.0.0.1:3000"),
    ("sweep a.py:f --workers 1.5", "a whole number is wanted, not '1.5'"),
    ("sweep nothing.py:f", "no such file: nothing.py"),
    ("watch", "nothing to record: give --upstream URL"),
    *(
        (f"watch --upstream http://x --fault '{fault}'", says)
        for fault, says in {
            "{}": "a fault needs 'victim'",
            '{"victim":"facilitator","does":"refuse"}': "watch does not record 'facilitator'",
            '{"victim":"service","does":"crash before"}': "and watch has none to stop",
        }.items()
    ),
    ("watch --upstream ftp://x", "a URL is wanted"),
    ("watch --upstream http://x --out /nowhere/x.ndjson", "--out /nowhere/x.ndjson: No such"),
]


@pytest.mark.parametrize(("words", "says"), WRONG)
def test_what_cannot_be_used_is_told_with_what_is_wanted(words: str, says: str) -> None:
    assert_misuse(run(*shlex.split(words)), says)


KEY, PHRASE = "42" * 32, "test test test test test test test test test test test junk"


@pytest.mark.parametrize(
    ("words", "secret", "says"),
    [
        (f"conformance payer -- 0x{KEY}", KEY, "cannot be started: No such file or directory"),
        (f"conformance facilitator --start K=0x{KEY}", KEY, "private key cannot be started"),
        (f"pay '{PHRASE}'", PHRASE, "words of a mnemonic is no URL"),
        (f"doctor '{PHRASE}'", PHRASE, "words of a mnemonic is no URL"),
        (f"conformance '{PHRASE}'", PHRASE, "got what looks like words of a mnemonic"),
    ],
)
def test_a_secret_at_a_wrong_place_is_not_repeated(words: str, secret: str, says: str) -> None:
    done = run(*shlex.split(words))
    assert_misuse(done, says)
    assert secret not in done.stderr


def test_a_defect_of_ours_has_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A judge's exit code 1 says that a MUST failed. The traceback shows no private key."""
    key = "0x" + "5e" * 32

    def broken(prog_name: str) -> None:
        raise ZeroDivisionError(f"--payer-key {key}")

    monkeypatch.setattr(cli, "app", broken)
    monkeypatch.setattr(cli.gc, "disable", lambda: None)  # this process goes on
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == cli.DEFECT == 70
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    assert key not in shown
