"""`decode`: shows any message of a payment field by field, with its defects."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from x402sim.clock import Clock
from x402sim.commands import common
from x402sim.protocol.envelopes import Enclosed, of_copies
from x402sim.protocol.explain import Decoded, explain
from x402sim.protocol.findings import IN_THE_BODY, Finding
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.networks import known_networks
from x402sim.protocol.recognize import MessageType, Recognized, messages_in, recognize
from x402sim.protocol.values import data_of
from x402sim.protocol.ways import Dialect

MOST = 1 << 20
"""The most characters to read."""


def _instead(text: str) -> str:
    """Return the advice for a file's name or a URL; empty for any other text."""
    if text.startswith(("http://", "https://")):
        return "it is a URL; `doctor URL` requests it, and examines its 402"
    is_file = text != "-" and len(text) < 256 and Path(text).is_file()
    return f"it is the name of a file; read it with `decode - < {text}`" if is_file else ""


def decode(
    header: Annotated[
        str, typer.Argument(help="A header's value, a body, or - for stdin.", metavar="HEADER")
    ],
    network_file: common.NetworkFile = None,
    as_json: common.AsJson = False,
) -> None:
    """Decode any message of a payment, and say what is wrong in it."""
    with common.as_misuse():
        text = sys.stdin.read(MOST) if header == "-" else header[:MOST]
        known = known_networks(network_file)
    first, *others = messages_in(text)
    try:
        found = recognize(first)
    except BadMessage as wrong:
        raise common.Misuse(f"cannot decode it: {_instead(header) or wrong}") from wrong
    now_s = Clock().now_s()
    decoded = list(explain(found, known, now_s))
    for other in others:  # a header beside the body
        try:
            decoded += explain(recognize(other), known, now_s)
        except BadMessage as wrong:
            name = other.partition(":")[0]
            do = "Encode the JSON, or leave the header out: clients of the x402 standard read it."
            decoded.append(Decoded(name, {}, (Finding(name, str(wrong), "base64 of JSON", do),)))
    findings = list(dict.fromkeys(finding for each in decoded for finding in each.findings))
    findings += _of_copies(found, others, is_answer=first not in (text, text.lstrip()))
    if as_json:
        document = {
            "kind": found.kind.name.lower(),
            "dialect": found.of,
            "encoding": found.encoding,
            "content": found.fields,
            "parts": [{"title": each.title, "facts": data_of(each.facts)} for each in decoded],
            "findings": [asdict(each) for each in findings],
        }
        common.print_json(document)
    else:
        for each in decoded:
            typer.secho(each.title, bold=True)
            common.print_facts(each.facts)
        common.print_findings(findings)
        if not any(each.stops for each in findings):
            part = "what was examined" if any(each.skipped for each in findings) else "it"
            typer.echo(f"Nothing is wrong in {part}.")
    if any(each.stops for each in findings):
        raise typer.Exit(common.NOT_ALL_HELD)


def _of_copies(found: Recognized, others: list[str], *, is_answer: bool) -> Iterator[Finding]:
    """Yield the differences between a version 2 offer in a body and in the header.

    A whole answer must have the offer in its header.
    """
    if found.kind is not MessageType.REQUIRED or found.dialect is not Dialect.V2:
        return
    copies = [Enclosed("the body", found.fields)]
    for each in others:
        with suppress(BadMessage):
            if (other := recognize(each)).row is found.row:
                copies.append(Enclosed(other.name, other.fields))
    yield from of_copies(copies)
    if is_answer and len(copies) == 1 and not found.name:
        yield IN_THE_BODY
