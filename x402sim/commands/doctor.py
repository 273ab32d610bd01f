"""`doctor`: examines the 402 of any URL: which payers can pay, and which defects stop payers."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any

import httpx
import typer

from x402sim.clock import Clock
from x402sim.commands import common, purchase as buying
from x402sim.commands.purchase import answer_to
from x402sim.payer.core import PAY_PATH
from x402sim.payer.diagnosis import Diagnosis, examine
from x402sim.payer.flow import post
from x402sim.payer.listing import look_up
from x402sim.protocol.networks import Network, known_networks
from x402sim.protocol.values import Amount, amount_of, data_of
from x402sim.protocol.ways import Dialect, Way, ways_in
from x402sim.text.words import printable

COLUMNS = {
    "paid in": 9,
    "scheme": 6,
    "network": 14,
    "asset": 11,
    "amount": 14,
    "payTo": 11,
    "window": 6,
}
"""The columns of an offer, with their widths."""


def doctor(
    url: buying.Address,
    method: buying.Method = None,
    data: buying.Data = None,
    header: buying.Headers = None,
    index: Annotated[
        str | None,
        typer.Option(
            help="Facilitator: say whether its index lists the resource, or why not.",
            metavar="URL",
        ),
    ] = None,
    network_file: common.NetworkFile = None,
    as_json: common.AsJson = False,
) -> None:
    """List the clients that could pay a URL, and the obstacles for the others."""
    with buying.client() as http:
        with common.as_misuse():
            request = buying.request_to(url, method, data, header)
            known = known_networks(network_file)
            if index is not None:
                buying.request_to(index, None, None, None)  # raises for what is no URL
        try:
            response = answer_to(http, request)
            ways = ways_in({}, response.content) if response.status_code == 402 else []
            pay_status = None  # the 402 offers no payment in two steps
            if any(way.dialect is Dialect.TWO_STEPS for way in ways):
                pay_status = answer_to(http, post(request, PAY_PATH, {})).status_code
        except httpx.HTTPError as error:
            raise common.Misuse(buying.no_answer(request.url, error)) from error
        found = examine(request, response, known, pay_status=pay_status, now_s=Clock().now_s())
        listing = None
        if index is not None and response.status_code == 402:
            try:
                listing, notes = look_up(response, found.ways, index, partial(answer_to, http))
            except httpx.HTTPError as error:
                raise common.Misuse(buying.no_answer(httpx.URL(index), error)) from error
            found = replace(found, findings=(*found.findings, *notes))
    if as_json:
        document = {
            "ok": found.can_be_paid,
            "status": response.status_code,
            "offers": [
                {
                    "dialect": way.dialect.value,
                    "resource": way.resource,
                    "amount": data_of(amount_of(way, known)),
                    "requirements": way.fields,
                }
                for way in found.ways
            ],
            "payers": [asdict(payer) for payer in found.payers],
            "findings": [asdict(finding) for finding in found.findings],
            "listing": listing and asdict(listing),
        }
        common.print_json(document)
    else:
        typer.echo(common.filled(f"{request.method} {request.url} answered {response.status_code}"))
        _show(found, known)
        if listing is not None and listing.is_listed:
            typer.echo(common.filled(f"{listing.url} is listed by {index}"))
    if not found.can_be_paid or (listing is not None and listing.is_listed is False):
        raise typer.Exit(common.NOT_ALL_HELD)


def _show(found: Diagnosis, known: Mapping[str, Network]) -> None:
    if found.ways:
        _row("", [*COLUMNS])
        for number, way in enumerate(found.ways, 1):
            _row(str(number), _cells(way, known))
        typer.echo("")
    for payer in found.payers if found.ways else ():
        mark, colour = ("yes", "green") if payer.can_pay else ("no ", "red")
        lines = common.filled(f"{payer.name:<18}  {payer.why}", 4).split("\n")
        typer.echo("\n".join([f"{typer.style(mark, fg=colour)} {lines[0][4:]}", *lines[1:]]))
    if found.findings:
        typer.echo("" if found.ways else "Nobody could pay:")
        common.print_findings(found.findings)


def _row(number: str, cells: list[str]) -> None:
    text = " ".join(
        f"{cell if len(cell) <= width else cell[: width - 1] + '…':<{width}}"
        for cell, width in zip(map(printable, cells), COLUMNS.values(), strict=True)
    )
    typer.echo(f"{number:<2} {text}".rstrip())


def _cells(way: Way, known: Mapping[str, Network]) -> list[str]:
    fields, amount = way.fields, amount_of(way, known)
    return [
        way.dialect.value.replace("version ", "v"),
        str(fields.get("scheme")),
        str(fields.get("network")),
        _short(fields.get("asset")),
        amount.short if isinstance(amount, Amount) else str(amount),
        _short(fields.get("payTo")),
        f"{fields.get('maxTimeoutSeconds')} s",
    ]


def _short(address: Any) -> str:
    text = str(address)
    return f"{text[:6]}…{text[-4:]}" if len(text) > 12 else text
