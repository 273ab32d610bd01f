"""`pay`: sends one request to any URL, pays as its 402 demands, and prints each exchange."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from x402sim.clock import command_started_s
from x402sim.commands import common, purchase as buying
from x402sim.payer.auth import DEADLINE_S, MAX_AMOUNT
from x402sim.payer.core import PAYMENT_ID_HEADER, PaymentFailed
from x402sim.payer.mistakes import MISTAKES, Mistake
from x402sim.payer.reading import UNKNOWN
from x402sim.payer.stored import Bought, Stored, Taken
from x402sim.payer.wallet import Wallet
from x402sim.protocol import mcp
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.networks import known_networks
from x402sim.protocol.refusals import Refusal, is_final
from x402sim.protocol.values import data_of
from x402sim.protocol.x402 import PROOF_HEADERS
from x402sim.text.words import printable, printable_lines

WRONG = " or ".join(", ".join(MISTAKES).rsplit(", ", 1))
VARIABLES = ("X402SIM_KEY", "X402SIM_PRIVATE_KEY")
Key = Annotated[
    str | None,
    typer.Option(help="Private key of the payer, 0x-hex.", envvar=[*VARIABLES], metavar="HEX"),
]
Only = Annotated[
    str | None,
    typer.Option(
        help="Pay on this network only: a name, or eip155:ID. A main network, with real money, "
        "is paid only when named.",
        metavar="NAME",
        envvar="X402SIM_NETWORK",
    ),
]
WorldUrl = Annotated[
    str | None,
    typer.Option(
        help="Your own `serve`: believe its clock and, without --key, its token.",
        metavar="URL",
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        help="Keep the payment in this folder; all that is signed stays within --max.",
        metavar="DIR",
        envvar="X402SIM_STATE_DIR",
    ),
]
AccountNumber = Annotated[
    int,
    typer.Option(
        help="Number of the account of `serve` that pays.",
        parser=common.within(0),
        metavar="N",
    ),
]
Most = Annotated[
    str,
    typer.Option(
        "--max",
        help="Most tokens to pay.",
        metavar="AMOUNT",
        envvar="X402SIM_MAX_AMOUNT",
    ),
]
Tool = Annotated[
    str | None,
    typer.Option(help="Tool of the MCP server at URL.", metavar="NAME", envvar="X402SIM_TOOL"),
]
Arguments = Annotated[
    str | None,
    typer.Option(
        help="Arguments of --tool, a JSON object. [default: {}]",
        metavar="JSON",
        envvar="X402SIM_ARGUMENTS",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="1: the request itself pays. 2: POST /api/pay, then the request again. [default: 2 "
        "if the 402 offers it, else 1]",
        parser=common.within(1, 2),
        metavar="N",
    ),
]
ByPermit2 = Annotated[
    bool,
    typer.Option(
        "--permit2",
        help="Pay offers by Permit2, too, if no other fits; --max bounds what is signed.",
    ),
]
Session = Annotated[
    bool, typer.Option("--session", help="Open a session, deposit --max, and pay from it.")
]
Wrong = Annotated[
    str | None,
    typer.Option(
        help=f"Make a mistake on a test network, and explain the answer: {WRONG}.",
        metavar="MISTAKE",
        parser=common.one_of("mistake", *MISTAKES),
        autocompletion=common.completing(lambda: MISTAKES),
    ),
]


@dataclass(slots=True)
class _Printer:
    """Collects steps, and prints each to stderr at once; with --json, nothing until the end."""

    as_json: bool
    steps: list[common.Step] = field(default_factory=list)

    def __call__(self, step: common.Step) -> None:
        self.steps.append(step)
        if not self.as_json:
            with suppress(OSError):  # a full stderr must not cost the goods
                common.print_step(len(self.steps), step, err=True)


def pay(
    url: buying.Address,
    method: buying.Method = None,
    data: buying.Data = None,
    header: buying.Headers = None,
    tool: Tool = None,
    arguments: Arguments = None,
    key: Key = None,
    account: AccountNumber = 0,
    most: Most = MAX_AMOUNT,
    steps: Steps = None,
    session: Session = False,
    permit2: ByPermit2 = False,
    wrong: Wrong = None,
    network: Only = None,
    network_file: common.NetworkFile = None,
    world: WorldUrl = None,
    state_dir: StateDir = None,
    as_json: common.AsJson = False,
) -> None:
    """Pay for a request, or a tool: a curl that answers a 402."""
    started_s, printer = command_started_s(), _Printer(as_json)
    with buying.client() as http:
        with common.as_misuse():
            if wrong is not None and session:
                raise ValueError("--wrong and --session: give one of them")
            if session and steps == 1:
                raise ValueError("--session and --steps 1: a deposit takes two steps; omit --steps")
            if permit2 and (session or wrong is not None or steps == 2):
                raise ValueError("--permit2: omit --session, --steps 2 and --wrong")
            if session and state_dir is not None:
                raise ValueError("--session and --state-dir: a session is not kept; omit one")
            if tool is not None:
                method, data = _without_task(method, data)
                if session or steps == 2:
                    raise ValueError("--tool: a tool is paid in one step; omit --session, --steps")
            elif arguments is not None:
                raise ValueError("--arguments: they are a tool's; name it with --tool")
            request = buying.request_to(url, method, data, header, tool, arguments)
            known = known_networks(network_file)
            if wrong is not None:  # a wrong payment may be made all the same
                tests = {name: each for name, each in known.items() if each.is_test}
                if any(network in (each, it.caip2) for each, it in known.items() - tests.items()):
                    raise ValueError(f"--wrong is for test networks; {network} is none")
                known = tests
            if world is None:
                local = buying.local_server(http, request.url, known)
            else:
                local = buying.world_at(http, world, known, own_key=key is not None)
            if network is not None:
                local = replace(local, allowed=local.allowed.only(network))
            is_kept = state_dir is not None and wrong is None
            kept = buying.kept_in(state_dir, request) if state_dir and is_kept else None
            of = (http, _wallet(key, account, local), local, request, printer)
            purchase = buying.Purchase(*of, most, steps, session, kept, permit2=permit2)
        if wrong is not None:
            _go_wrong(purchase, MISTAKES[wrong], printer)
            return
        if kept is None:
            _pay(purchase, printer)
            return
        with _alone(kept, printer):
            bought = buying.bought_in(kept, started_s)
            if bought is None:
                _pay(purchase, printer)
            else:
                _show_bought(bought, printer)
            try:
                buying.note_printed(kept)
            except PaymentFailed as failed:
                again = "the next start may print the goods again, or send the payment again"
                typer.echo(f"x402sim: {failed.why}; {again}", err=True)


UNDER_WAY = 75
"""Exit code if another start of the same purchase has not ended; EX_TEMPFAIL of sysexits.h."""


@contextmanager
def _alone(kept: Stored, printer: _Printer) -> Iterator[None]:
    """Wait until no other process pays for a request, and keep other processes out; may exit."""
    with ExitStack() as stack:
        try:
            stack.enter_context(kept.alone(DEADLINE_S))
        except Taken as taken:
            busy = f"another start of this command has not ended in {DEADLINE_S:.0f} s"
            _end(printer, f"nothing was signed here: {busy}; start it again")
            raise typer.Exit(UNDER_WAY) from taken
        except PaymentFailed as wrong:
            raise common.Misuse(str(wrong)) from wrong
        yield


def _show_bought(bought: Bought, printer: _Printer) -> None:
    answer = httpx.Response(bought.status, content=bought.body)
    if printer.as_json:
        _print_json(printer, ok=True, answer=answer, payment=bought.payment)
        return
    _end(printer, "", answer)
    told = "x402sim: bought by another start of this command; nothing was signed here"
    typer.echo(told, err=True)


def _pay(purchase: buying.Purchase, printer: _Printer) -> None:
    """Pay for a request, and print the outcome; exits with 1 unless served."""
    answer = _bought(purchase, printer)
    outcome = purchase.ask_chain()
    problem = "" if answer.is_success else purchase.local.hinted(in_vain(outcome, answer))
    _end(printer, problem, answer, outcome, ok=not problem)
    if problem:
        raise typer.Exit(common.NOT_ALL_HELD)


def _bought(purchase: buying.Purchase, printer: _Printer) -> httpx.Response:
    """Return the answer to a paid request; exits if nothing was signed, or nothing served."""
    try:
        answer = purchase.buy()
    except (PaymentFailed, httpx.HTTPError) as failed:
        if purchase.sent is not None:
            outcome = purchase.ask_chain()
            why = purchase.local.hinted(failure(failed, outcome, purchase.answer, purchase.last))
            why = why.replace("max_total", "--max")
            _end(printer, f"not served: {why}", _part(purchase.newest), outcome)
            raise typer.Exit(common.NOT_ALL_HELD) from failed
        if isinstance(failed, PaymentFailed):
            problem = f"nothing was paid: {failed}".replace("max_amount", "--max")
            raise common.Misuse(purchase.local.hinted(problem.removesuffix("."))) from failed
        raise common.Misuse(buying.no_answer(purchase.request.url, failed)) from failed
    if purchase.sent is None:
        if purchase.kept is not None and answer.is_success:  # free, or already paid for
            _end(printer, "", answer, ok=True)
            raise typer.Exit
        _end(printer, "", answer)
        raise common.Misuse(f"nothing was paid: {instead(answer)}")
    return answer


def _part(answer: httpx.Response | None) -> httpx.Response | None:
    """Return what came of an answer whose body broke off; None if nothing came."""
    read = answer.extensions.get("read") if answer is not None and answer.is_success else None
    return httpx.Response(answer.status_code, content=bytes(read)) if answer and read else None


def _end(
    printer: _Printer,
    problem: str,
    answer: httpx.Response | None = None,
    outcome: buying.Outcome | None = None,
    *,
    ok: bool = False,
) -> None:
    """Print the body (escaped on a terminal), and the facts of the payment; or JSON."""
    try:
        if printer.as_json:
            payment = None if outcome is None else outcome.data()
            _print_json(printer, ok=ok, problem=problem, answer=answer, payment=payment)
            return
        if answer is not None:
            _print_body(answer.content)
    except typer.Exit:  # of a stdout that takes nothing
        _tell(problem, outcome)
        raise
    _tell(problem, outcome)


def _print_body(content: bytes) -> None:
    with common.on_stdout():
        if sys.stdout.isatty():
            typer.echo(printable_lines(content.decode("utf-8", "replace")))
        else:
            typer.echo(content, nl=not content.endswith(b"\n"))


def _tell(problem: str, outcome: buying.Outcome | None) -> None:
    if problem:
        typer.echo(f"x402sim: {printable(problem)}", err=True)
    elif outcome is not None:
        typer.echo(f"x402sim: served, and {printable(outcome.described())}", err=True)


# --- the options -------------------------------------------------------------------------


def _without_task(method: str | None, data: str | None) -> tuple[None, None]:
    """Drop the method and body that a task's environment sets for a tool; raises `ValueError`."""
    told = os.environ.get("X402SIM_METHOD"), os.environ.get("X402SIM_BODY")
    if any(given not in (None, known) for given, known in zip((method, data), told, strict=True)):
        raise ValueError("--tool: it has --arguments; omit --method and --data")
    return None, None


def _wallet(key: str | None, account: int, local: buying.Local) -> Wallet:
    count = len(local.allowed.keys)
    if key is None and account >= count:
        raise ValueError(f"--account {account}: there are {count}, from 0 to {count - 1}")
    try:
        return Wallet(local.allowed.keys[account] if key is None else key)
    except ValueError as wrong:
        source = next((each for each in VARIABLES if os.environ.get(each) == key), "--key")
        number = f"; account {key} of a local server is --account {key}"
        raise ValueError(f"{source}: {wrong}{number if (key or '').isdigit() else ''}") from wrong


# --- advice -------------------------------------------------------------------------------


def instead(answer: httpx.Response) -> str:
    """Return the advice for an answer other than 402."""
    status = answer.status_code
    if answer.has_redirect_location:
        there = shlex.quote(answer.headers["location"])
        return f"the server answered {status} and redirects to {there}: give that URL"
    if answer.is_error and answer.request.url.path.rstrip("/").endswith("/mcp"):
        do = "name a tool with --tool, and give the arguments with --arguments"
        return f"the server answered {status}; a server of MCP sells tools: {do}"
    if status == 405:
        allowed = answer.headers.get("allow", "another method")
        do = "give that with --method, and a body, if wanted, with --data"
        return f"the server answered 405; it allows {allowed}: {do}"
    if answer.is_success:
        return f"the server answered {status} without asking for a payment; give a paid URL"
    return f"the server answered {status}, not 402: correct the URL, --method, --data or --header"


def failure(
    failed: PaymentFailed | httpx.HTTPError,
    outcome: buying.Outcome,
    answer: httpx.Response | None,
    last: httpx.Request | None,
) -> str:
    """Return why a signed payment failed, with advice: a new call would sign another payment.

    `answer` is the answer to the payment, or None, and `last` the last request.
    """
    why = failed.why if isinstance(failed, PaymentFailed) else str(failed)
    if answer is not None and answer.is_success:
        proof = proof_in(last) if last and isinstance(failed, httpx.HTTPError) else ""
        if last is None or not proof:
            return why
        again = f"{last.method} {last.url.path} with {proof}"
        return f"{why.rstrip('.')}. It was paid: {again} gets what was paid for"
    body = {} if answer is None else buying.body_of(answer)
    error, final = str(body.get("error")), body.get("final")
    if answer is not None and is_final(error, final if isinstance(final, bool) else None):
        refusal = Refusal.named(error)
        remedy = refusal.row.remedy if refusal else ""
        return why if remedy in why else f"{why}. {remedy}"
    if isinstance(failed, httpx.HTTPError):
        why = f"{UNKNOWN}: {why.rstrip('.')}"
    sent, goods, known = outcome.sent, "", outcome.described()
    if sent.payment_id:
        goods = f"the request with -H {_quoted(PAYMENT_ID_HEADER, sent.payment_id)} gets the goods"
    if outcome.is_confirmed:
        why = why.removeprefix(f"{UNKNOWN}: ")
        return f"{why.rstrip('.')}. It is {known}{'; ' * bool(goods)}{goods}"
    goods = f". If it was, {goods}" * bool(goods)
    return f"{why}. The authorization is {known}; {outcome.question()}{goods}"


def in_vain(outcome: buying.Outcome, answer: httpx.Response) -> str:
    """Return the advice for a signed request that was answered with an error."""
    proof, status = proof_in(answer.request), answer.status_code
    if outcome.is_confirmed and answer.has_redirect_location:
        return f"paid, and {instead(answer)}"
    if outcome.is_confirmed:
        again = f"; correct the request, and send it with {proof}: that is paid for"
        return f"paid, and the server answered {status}{again * bool(proof)}"
    again = f". The request with {proof} sends the same payment again" * bool(proof)
    return f"the server answered {status}; {outcome.described()}; {outcome.question()}{again}"


def proof_in(request: httpx.Request) -> str:
    """Return the option -H that repeats a request's proof of payment; "" without one."""
    headers = request.headers
    if mcp.TOOL in headers:
        return ""
    shown = (name for name in PROOF_HEADERS if name in headers)
    return next((f"-H {_quoted(name, headers[name])}" for name in shown), "")


def _quoted(name: str, value: str) -> str:
    """Return a header as one word of a shell, safe for any value that a server sends."""
    return shlex.quote(f"{name}: {value}")


# --- the outcome -------------------------------------------------------------------------


def _go_wrong(purchase: buying.Purchase, mistake: Mistake, printer: _Printer) -> None:
    """Pay with a mistake, and explain the answer; exits with 1 unless the server refuses it."""
    used = None
    if mistake.name == "replay":
        _bought(purchase, printer)
        assert purchase.sent is not None
        used = purchase.sent
    wrong = replace(purchase, mistake=mistake, used=used)
    answer = _bought(wrong, printer)
    right, sent = wrong.right, wrong.sent
    assert right is not None
    assert sent is not None
    ok = 400 <= answer.status_code < 500
    facts = {
        "mistake": f"the payer {mistake.does}",
        "sent": mistake.shows(sent),
        "wanted": mistake.shows(right),
        "server said": buying.refusal_in(answer),
        "do": mistake.remedy if ok else f"At the server: refuse it. {mistake.remedy}",
    }
    if used is None and sent.is_usable:
        facts["payment"] = wrong.outcome.described()
    if printer.as_json:
        _print_json(printer, ok=ok, wrong={"name": mistake.name, **data_of(facts)}, answer=answer)
    else:
        did = "accepted it" if answer.is_success else "failed on it"
        with common.on_stdout():
            typer.echo("Refused, as it should be." if ok else f"Not refused: the server {did}.")
            common.print_facts(facts)
    if not ok:
        raise typer.Exit(common.NOT_ALL_HELD)


def _print_json(
    printer: _Printer, *, ok: bool, answer: httpx.Response | None = None, **more: Any
) -> None:
    steps = [
        {"title": step.title, "ok": step.ok, "mark": step.mark, "facts": data_of(step.facts)}
        for step in printer.steps
    ]
    found: dict[str, Any] = {"ok": ok, "steps": steps}
    if answer is not None:
        try:
            body = decode(answer.content, Any)
        except BadMessage:
            body = answer.content.decode("utf-8", "replace")
        found |= {"status": answer.status_code, "body": body}
    common.print_json(found | {name: each for name, each in more.items() if each})
