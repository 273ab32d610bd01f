"""Reads the options of a run from texts: what the command's flags, or pytest's, were given."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from x402sim.protocol.refusals import Refusal
from x402sim.spec.ground import folder
from x402sim.suite.case import near, skipped
from x402sim.suite.options import again, given as given_or_default, read
from x402sim.suite.service import target as targets
from x402sim.suite.service.check import DOCUMENT, IDS_BEGIN
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.options import HIDDEN, Options, clean_url, secrets
from x402sim.suite.service.sending import tls
from x402sim.text.words import unknown


def parse(base_url: str | None, **given: Any) -> Options:
    """Return what flags give, by their names; raises `ValueError` that names the flag."""
    values = given_or_default(Options, given)
    target = find_target(values["target"])
    cleaned, user = clean_url(base_url, "URL")
    if cleaned is None:
        raise ValueError("no service to judge: give its URL, such as http://127.0.0.1:4020")
    base_url = _base(cleaned, target)
    options = Options(
        **read(Options, values) | {"target": target},
        base_url=base_url,
        given_url=cleaned,
        rerun=again((base_url, *(_SHOWN_USER if user else ())), Options, values),
    )
    headers = {**options.headers, **({"Authorization": f"Basic {user}"} if user else {})}
    options = replace(
        options,
        headers=headers,
        secrets=secrets(headers, options.rpc_url),
        skip=skipped(all_checks(), values["skip"] or (), IDS_BEGIN),
    )
    if options.cacert is not None:
        tls(options)  # raises, if it cannot be read
    return options


_SHOWN_USER = ("--header", f"Authorization:{HIDDEN}")


def _base(url: str, target: targets.Target) -> str:
    """Return the base URL, given it or the URL of an endpoint of the target."""
    known = [target.protected.path, target.pay.path]
    known += [target.sessions.path] if target.sessions.exists else []
    for path in known:
        if url.rstrip("/").endswith(path):
            return url.rstrip("/").removesuffix(path)
    return url


def find_target(name: str) -> targets.Target:
    """Return a shipped target by name, or the one in a file.

    Raises `ValueError` for an unknown name, a malformed file, and a clause or an error text
    in it that no check has.
    """
    shipped = {file.stem: file for file in sorted((folder() / "targets").glob("*.toml"))}
    file = shipped.get(name, Path(name))
    if not file.is_file():
        if name.endswith(".toml") or "/" in name:
            raise ValueError(
                f"--target: there is no file {name!r}; `target init URL --out FILE` writes one"
            )
        raise ValueError(
            f"--target: {unknown('target', name, shipped)}, or the path of a TOML file"
        )
    target = targets.load(file)
    kept = {name.removeprefix(f"{DOCUMENT}/"): why for name, why in target.not_kept.items()}
    target = msgspec.structs.replace(target, not_kept=kept)
    clauses = dict.fromkeys(check.clause for check in all_checks())
    for clause in target.not_kept:
        if clause not in clauses:
            known = near(clauses, clause, IDS_BEGIN)
            raise ValueError(f"{file}: not_kept: {unknown('id', clause, known)}")
    texts = [refusal.text for refusal in Refusal]
    for text in target.statuses:
        if text not in texts:
            raise ValueError(f"{file}: statuses: {unknown('error text', text, texts)}")
    return target
