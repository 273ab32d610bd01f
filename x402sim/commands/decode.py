"""`decode`: any message of a payment, field by field, and what is wrong in it."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from x402sim.clock import Clock
from x402sim.commands.common import NOT_ALL_HELD, AsJson, Misuse, NetworkFile, as_misuse
from x402sim.commands.explain import explain
from x402sim.commands.steps import print_facts, print_findings
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.network_file import known_networks
from x402sim.protocol.recognize import recognize

MOST = 1 << 20
"""The most characters that are read."""


def _instead(text: str) -> str:
    """Return what to do with the name of a file, or a URL; nothing for any other text."""
    if text.startswith(("http://", "https://")):
        return "it is a URL; `doctor URL` asks it, and examines its 402"
    is_file = text != "-" and len(text) < 256 and Path(text).is_file()
    return f"it is the name of a file; read it with `decode - < {text}`" if is_file else ""


def decode(
    header: Annotated[
        str, typer.Argument(help="A header's value, a body, or - for stdin.", metavar="HEADER")
    ],
    network_file: NetworkFile = None,
    as_json: AsJson = False,
) -> None:
    """Decode any message of a payment, and say what is wrong in it.

    It reads payments (the header of POST /api/pay, X-PAYMENT, PAYMENT-SIGNATURE), 402s (bodies and
    PAYMENT-REQUIRED), payment requirements, and receipts (X-PAYMENT-RESPONSE, PAYMENT-RESPONSE):
    of our two steps, which are Cronos', and of the x402 standard, versions 1 and 2; as JSON,
    base64 or 0x-hex; and in a whole HTTP answer. Of a payment it recovers who signed it.

    Example: curl -si URL | x402sim decode -

    Exit code: 0 if nothing is wrong, 1 if something is, 2 if it cannot be read.
    """
    with as_misuse():
        text = sys.stdin.read(MOST) if header == "-" else header[:MOST]
        known = known_networks(network_file)
    try:
        found = recognize(text)
    except BadMessage as wrong:
        raise Misuse(f"cannot decode it: {_instead(header) or wrong}") from wrong
    decoded = list(explain(found, known, Clock().now_s()))
    findings = [finding for each in decoded for finding in each.findings]
    if as_json:
        told = {
            "kind": found.kind.name.lower(),
            "dialect": found.dialect.value,
            "encoding": found.encoding,
            "content": found.said,
            "parts": [{"title": each.title, "facts": each.facts} for each in decoded],
            "findings": [asdict(each) for each in findings],
        }
        typer.echo(json.dumps(told, indent=2))
    else:
        for each in decoded:
            typer.secho(each.title, bold=True)
            print_facts(each.facts)
        print_findings(findings)
        if not findings:
            typer.echo("Nothing is wrong in it.")
    if any(each.stops for each in findings):
        raise typer.Exit(NOT_ALL_HELD)
