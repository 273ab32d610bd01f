"""`open`: shows a saved run on the page of `serve`."""

from pathlib import Path
from typing import Annotated

import typer

from x402sim.commands.common import Misuse, Port, load_journal, starting, stop_on_signals
from x402sim.report.page import newest, of_journal, of_run
from x402sim.report.reading import LAST
from x402sim.serving.listen import Listen, base_url, listening_socket, own_programs_only
from x402sim.serving.page import PATH, PageFeed, journal_page, one_page
from x402sim.serving.serve import Server, run as serve

NAME = "journal.ndjson"
SAVES = "`run --out DIR` saves runs, one folder for each scenario"
Saved = Annotated[
    str, typer.Argument(metavar="RUN", help=f"A journal, or the folder of a run with {NAME}.")
]


Every = Annotated[
    bool, typer.Option("--all", help=f"Show all payments, not only the newest {LAST}.")
]


def open_run(run: Saved = ".", port: Port = 0, every: Every = False) -> None:
    """Show a saved run in a browser.

    The page has the newest 500 payments, and says how many older ones it leaves out.
    """
    if run.startswith(("http://", "https://")):
        raise Misuse(f"{run} is a URL; a running server shows its page at {PATH}: use a browser")
    file = _journal_in(Path(run))
    journal = load_journal(file)
    with starting(None):
        listen = Listen(port=port)
        sock = listening_socket(listen)
    feed = PageFeed(journal)
    try:
        if every or not newest(journal, LAST).older:
            shown = journal_page(lambda: of_journal(journal, str(file)), feed)
        else:
            shown = one_page(of_run(journal, str(file), LAST))
    except ValueError as error:  # a bad line: of a large file, lines are decoded only here
        raise Misuse(f"{file}: {error}") from error
    app = own_programs_only(shown, (), is_local=listen.is_local)

    def on_start() -> None:
        stop_on_signals(server)
        typer.echo(f"{file} is at {base_url(listen, sock)}{PATH}\nCtrl-C stops it.")

    server = Server(app, on_start, on_stop=feed.stop)
    serve(server.serve(sockets=[sock]))


def _journal_in(run: Path) -> Path:
    """Return the journal of a run; raises `Misuse` for a folder with none, or with several."""
    if not run.exists():
        raise Misuse(f"there is no {run}; {SAVES}")
    if not run.is_dir() or (run / NAME).exists():
        return run / NAME if run.is_dir() else run
    found = sorted(run.glob(f"*/{NAME}"))
    if len(found) == 1:
        return found[0]
    some = ", ".join(str(file.parent) for file in found[:5])
    several = f"{run} has {len(found)} runs; name one: {some}{', …' * (len(found) > 5)}"
    raise Misuse(several if found else f"{run} has no {NAME}; {SAVES}")
