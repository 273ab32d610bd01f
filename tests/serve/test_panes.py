"""`serve` in one pane and `pay` in another: what each prints is in `panes.txt`, for 80 columns.

Times, ids, keys and hashes differ from run to run and are masked. `NEW_PANES=1 pytest FILE`
writes the text anew: read it as a user would.
"""

import json
import os
import re
import signal
from pathlib import Path

from tests.cli.runner import run
from tests.serve.driver import ORDER, QUOTE, Server, started
from tests.serve.test_log import LOST, MASKS, SESSION, log_of, masked
from tests.suite.deployment import Deployment
from x402sim.payer.mistakes import MISTAKES

PANES = Path(__file__).with_name("panes.txt")
VICTIM = {"victim": "service", "does": "lose answer", "path": "/api/pay"}
SOMEBODY = "0x" + "2" * 40
ONLY_HERE = (
    (r"0x[0-9a-f]{64}", "0x" + "a" * 64),
    (r"(?<=12:00:00 )0x\w{4}…\w{4}", "0x2222…2222"),
    (r"session_(?=\S*\d)[\w-]{20,}", "session_whole"),
    (r'^\{"quote".*', '{"quote": …}'),
    (r"in 4 min \d+ s", "in 5 min"),  # a second or more later
    (r"1 min \d+ s ago", "1 min ago"),
)


def hidden(text: str, known: set[str]) -> str:
    """Return a pane with the same times, ids, hashes and new accounts in every run."""
    for pattern, mask in (*MASKS, *ONLY_HERE):
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    address = r"0x[0-9a-fA-F]{40}\b"
    return re.sub(address, lambda at: at[0] if at[0] in known else SOMEBODY, text)


def pay(server: Server, *options: str) -> str:
    """Return the prompt, what the command prints, and its exit code; of a mistake only stdout."""
    url = server.ready["service"] + QUOTE
    done = run("pay", url, "-d", json.dumps(ORDER), *options)
    steps = "" if "--wrong" in options else done.stderr
    prompt = " ".join(("$ x402sim pay", QUOTE, *options))
    return f"{prompt}{' 2>/dev/null' * (not steps)}\n{steps}{done.stdout}[{done.exit_code}]\n"


def test_both_panes_say_what_happened_what_was_wanted_and_what_to_do() -> None:
    with started() as server:
        told = [pay(server), *(pay(server, "--wrong", name) for name in MISTAKES)]
        for fault in (LOST, VICTIM):
            told.append(f"(the answer of {fault['victim']} {fault['path']} will be lost)\n")
            assert server.http.post("/_sim/faults", json=fault).status_code == 200
            told.append(pay(server))
        told.append(pay(server, "--session", "--max", "0.02"))
        log, ready = log_of(server), server.ready
    known = {ready["payTo"], ready["asset"], ready["accounts"][0]["address"]}
    found = hidden("\n".join(told) + "\n$ x402sim serve\n" + log, known)
    if os.environ.get("NEW_PANES"):
        PANES.write_text(found, "utf-8")
    assert found == PANES.read_text("utf-8")
    assert max(map(len, log.splitlines())) <= 80


ALONE = re.sub(r"(?m)^ +transfer: .*\n", "", SESSION).replace("account 0    ", "0xf39F…2266  ")


def test_a_service_alone_has_a_log_too() -> None:
    deployment = Deployment()
    try:
        for wrong in ((), ("--wrong", "amount")):
            words = (
                "pay",
                deployment.url + QUOTE,
                "-d",
                json.dumps(ORDER),
                "--key",
                deployment.key,
                *wrong,
            )
            assert run(*words).exit_code == 0
        assert deployment.service.end(signal.SIGINT) == 0
        assert masked(deployment.service.errors()) == ALONE
    finally:
        deployment.close()
