"""`pay`: one request to any URL, paid if it answers 402, step by step."""

import json
import os
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any

import httpx
import typer

from x402sim.commands.asking import (
    Data,
    Headers,
    Method,
    Url,
    client,
    instead,
    no_answer,
    request_to,
)
from x402sim.commands.common import (
    NOT_ALL_HELD,
    AsJson,
    Misuse,
    NetworkFile,
    as_misuse,
    completing,
    within,
)
from x402sim.commands.outcome import Outcome, failure, in_vain, said
from x402sim.commands.purchase import Local, Purchase, local_server
from x402sim.commands.steps import Step, print_facts, print_step
from x402sim.payer.core import PaymentFailed
from x402sim.payer.mistakes import MISTAKES, Mistake
from x402sim.payer.wallet import Wallet
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.networks import known_networks
from x402sim.protocol.values import data_of
from x402sim.text.printable import printable, printable_lines
from x402sim.text.suggest import unknown

WRONG = " or ".join(", ".join(MISTAKES).rsplit(", ", 1))
VARIABLE = "X402SIM_KEY"
Key = Annotated[
    str | None,
    typer.Option(help="Private key of the payer, 0x-hex.", envvar=VARIABLE, metavar="HEX"),
]
AccountNumber = Annotated[
    int,
    typer.Option(
        "--account",
        help="Account of the local server that pays, by number.",
        parser=within(0),
        metavar="N",
    ),
]
Most = Annotated[str, typer.Option("--max", help="Pay at most so many tokens.", metavar="AMOUNT")]
Steps = Annotated[
    int | None,
    typer.Option(
        help="1: the request itself pays, in X-PAYMENT or PAYMENT-SIGNATURE. 2: POST /api/pay, "
        "then the request again. [default: 2 if the 402 offers it, else 1]",
        parser=within(1, 2),
        metavar="N",
    ),
]
Session = Annotated[
    bool, typer.Option("--session", help="Open a session, deposit --max, and pay from it.")
]
Wrong = Annotated[
    str | None,
    typer.Option(
        help=f"Make one mistake, and explain the answer: {WRONG}.",
        metavar="MISTAKE",
        autocompletion=completing(lambda: MISTAKES),
    ),
]


@dataclass(slots=True)
class _Told:
    """What was told so far; on stderr at once, unless all is printed as JSON at the end."""

    as_json: bool
    steps: list[Step] = field(default_factory=list)

    def __call__(self, step: Step) -> None:
        self.steps.append(step)
        if not self.as_json:
            print_step(len(self.steps), step, err=True)


def pay(
    url: Url,
    method: Method = None,
    data: Data = None,
    header: Headers = None,
    key: Key = None,
    account: AccountNumber = 0,
    most: Most = "0.10",
    steps: Steps = None,
    session: Session = False,
    wrong: Wrong = None,
    network_file: NetworkFile = None,
    as_json: AsJson = False,
) -> None:
    """Pay for a request: a curl that answers a 402."""
    told = _Told(as_json)
    with client() as http:
        with as_misuse():
            if wrong is not None and session:
                raise ValueError("--wrong and --session: give one of them")
            if wrong not in (None, *MISTAKES):
                raise ValueError(unknown("mistake", str(wrong), MISTAKES))
            if session and steps == 1:
                raise ValueError("--session and --steps 1: a deposit takes two steps; omit --steps")
            request = request_to(url, method, data, header)
            local = local_server(http, request.url, known_networks(network_file))
            wallet = _wallet(key, account, local)
            purchase = Purchase(http, wallet, local, told, most, steps, session)
        if wrong is not None:
            _go_wrong(purchase, request, MISTAKES[wrong], told)
        else:
            answer = _bought(purchase, request, told)
            outcome = purchase.ask_chain()
            problem = "" if answer.is_success else in_vain(outcome, answer)
            _end(told, problem, answer, outcome, ok=not problem)
            if problem:
                raise typer.Exit(NOT_ALL_HELD)


def _bought(
    purchase: Purchase, request: httpx.Request, told: _Told, **wrong: Any
) -> httpx.Response:
    """Return the answer to a request; exits if nothing was signed, or if it was in vain."""
    try:
        answer = purchase.buy(request, **wrong)
    except (PaymentFailed, httpx.HTTPError) as failed:
        if purchase.sent is not None:
            outcome = purchase.ask_chain()
            why = failure(failed, outcome, purchase.answer, purchase.last)
            _end(told, f"not served: {why}", outcome=outcome)
            raise typer.Exit(NOT_ALL_HELD) from failed
        if isinstance(failed, PaymentFailed):
            problem = f"nothing was paid: {failed}".replace("max_amount", "--max")
            raise Misuse(problem) from failed
        raise Misuse(no_answer(request.url, failed)) from failed
    if purchase.sent is None:
        _end(told, "", answer)
        raise Misuse(f"nothing was paid: {instead(answer)}")
    return answer


def _end(
    told: _Told,
    problem: str,
    answer: httpx.Response | None = None,
    outcome: Outcome | None = None,
    *,
    ok: bool = False,
) -> None:
    """Print the body if there is one, and what is known of the payment; as JSON everything."""
    if told.as_json:
        payment = None if outcome is None else outcome.data()
        _print_json(told, ok=ok, problem=problem, answer=answer, payment=payment)
        return
    if answer is not None:
        _print_body(answer)
    if problem:
        typer.echo(f"x402sim: {printable(problem)}", err=True)
    elif outcome is not None:
        typer.echo(f"x402sim: served, and {printable(outcome.told())}", err=True)


# --- the options -------------------------------------------------------------------------


def _wallet(key: str | None, account: int, local: Local) -> Wallet:
    """Return who pays; raises `ValueError`."""
    if key is None and account >= len(local.keys):
        raise ValueError(
            f"--account {account}: there are {len(local.keys)}, from 0 to {len(local.keys) - 1}; "
            "`serve --accounts N` funds more"
        )
    try:
        return Wallet(local.keys[account] if key is None else key)
    except ValueError as wrong:
        source = VARIABLE if os.environ.get(VARIABLE) == key else "--key"
        number = f"; account {key} of a local server is --account {key}"
        raise ValueError(f"{source}: {wrong}{number if (key or '').isdigit() else ''}") from wrong


# --- the outcome -------------------------------------------------------------------------


def _go_wrong(purchase: Purchase, request: httpx.Request, mistake: Mistake, told: _Told) -> None:
    """Make a mistake, and explain the answer; exits with 1 if the server does not refuse it."""
    used = None
    if mistake.name == "replay":
        _bought(purchase, request, told)
        assert purchase.sent is not None
        used = purchase.sent.auth
    answer = _bought(purchase, request, told, mistake=mistake, used=used)
    right, sent = purchase.right, purchase.sent
    assert right is not None
    assert sent is not None
    ok = 400 <= answer.status_code < 500
    facts = {
        "mistake": f"the payer {mistake.does}",
        "sent": mistake.shows(sent),
        "wanted": mistake.shows(right),
        "server said": said(answer),
        "do": mistake.remedy if ok else f"At the server: refuse it. {mistake.remedy}",
    }
    if told.as_json:
        _print_json(told, ok=ok, wrong={"name": mistake.name, **data_of(facts)}, answer=answer)
    else:
        did = "took it" if answer.is_success else "failed on it"
        typer.echo("Refused, as it should be." if ok else f"Not refused: the server {did}.")
        print_facts(facts)
    if not ok:
        raise typer.Exit(NOT_ALL_HELD)


def _print_json(
    told: _Told, *, ok: bool, answer: httpx.Response | None = None, **more: Any
) -> None:
    found: dict[str, Any] = {"ok": ok, "steps": [_as_data(step) for step in told.steps]}
    if answer is not None:
        found |= {"status": answer.status_code, "body": _body(answer)}
    typer.echo(json.dumps(found | {name: each for name, each in more.items() if each}, indent=2))


def _as_data(step: Step) -> dict[str, Any]:
    return {"title": step.title, "ok": step.ok, "mark": step.mark, "facts": data_of(step.facts)}


def _body(answer: httpx.Response) -> Any:
    """Return the JSON of a body, or its text."""
    try:
        return decode(answer.content, Any)
    except BadMessage:
        return answer.content.decode("utf-8", "replace")


def _print_body(answer: httpx.Response) -> None:
    """Print a body as it is; on a terminal, escaped."""
    content = answer.content
    if sys.stdout.isatty():
        typer.echo(printable_lines(content.decode("utf-8", "replace")))
    else:
        typer.echo(content, nl=not content.endswith(b"\n"))
