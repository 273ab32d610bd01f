"""`service`: the service only, against external dependencies."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from x402sim.commands import common, selling
from x402sim.journal import Journal
from x402sim.protocol.networks import choose_network
from x402sim.service.environment import read_environment, url_of
from x402sim.serving.listen import Listen, base_url, listening_socket
from x402sim.serving.serve import open_service, run, serve_alone


def service(
    host: common.Host = "127.0.0.1",
    port: common.Port = 4021,
    db: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep payments, sessions and the secret of payment ids in this SQLite file.",
        ),
    ] = None,
    sell: selling.Sell = None,
    body: selling.Body = None,
    openapi: selling.OpenApi = None,
    upstream: selling.UpstreamUrl = None,
    price: selling.Price = None,
    facilitator: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Facilitator of the x402 standard; without it, FACILITATOR_URL of Cronos.",
        ),
    ] = None,
    network: common.NetworkName = None,
    network_file: common.NetworkFile = None,
    log: common.LogForm = "text",
    verbose: common.Verbose = False,
    quiet: common.Quiet = False,
) -> None:
    """Start the service only, against an external world."""
    with common.as_misuse(begin="--facilitator: "):
        if facilitator is not None:
            url_of(facilitator)
    with common.starting(db):
        chosen = None  # NETWORK decides
        if network is not None or network_file is not None:
            chosen = choose_network(network or os.environ.get("NETWORK") or None, network_file)
        setup = read_environment(os.environ, chosen, facilitator)
        if goods := selling.goods(sell, body, openapi, upstream, price):
            setup = replace(setup, settings=selling.selling(setup.settings, goods))
        listen = Listen(host=host, port=port)
        sock = listening_socket(listen)
        journal = Journal(limit=1)  # the log gets each event as it happens
        process, http = open_service(setup, db, journal)

    def on_start(running: Any) -> None:
        common.stop_on_signals(running)
        typer.echo(f"x402sim service at {base_url(listen, sock)}; Ctrl-C stops it")

    form = common.log_form(log, verbose=verbose, quiet=quiet)
    run(serve_alone(process, http, sock, on_start, journal, form))
    typer.echo("stopped")
