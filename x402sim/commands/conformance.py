"""`conformance`: judges a service by its URL, or another subject after its name."""

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from x402sim.commands.common import as_misuse, completing, made, number, whole
from x402sim.commands.configuration import defaults
from x402sim.report.conformance import About
from x402sim.report.results import Results
from x402sim.spec.clauses import CLAUSES
from x402sim.suite import printing, published, sdk
from x402sim.suite.baseline import load as load_baseline
from x402sim.suite.case import select
from x402sim.suite.command import Asked, judge_and_report, require_places
from x402sim.suite.options import KEEP, STRICT, Flag, OfJudge, flags_of
from x402sim.suite.subject import DEFAULT, SUBJECTS, Subject, subject as subject_of

KNOWN = "known"
"""The word for --baseline that stands for the failures of published versions."""
SITE, CAMPAIGN = "site", "campaign"
"""The words after `conformance` for the commands that make a site of verdicts, and the verdicts."""
EPILOG = """
Outcomes: passed, failed, skipped (a need is missing), inconclusive (the check could not be
completed), observed (the specification is silent). Exit codes: 0, every MUST held; 1, a MUST
failed; 2, wrong usage, a service that cannot be judged (no answer, another dialect, a payer
without money, a clock that is wrong), or a MUST is inconclusive.
"""
"""The end of the help."""
_PARSERS: dict[type, Callable[[Any], Any]] = {float: number, int: whole}
Given = TypeVar("Given", bound=Callable[..., None])

Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="PREFIX",
        help="Check only clause ids (see `--list`) with this prefix, such as 5 or 7/nonce; "
        "repeatable, or separated by commas.",
        autocompletion=completing(lambda: (clause.id for clause in CLAUSES)),
    ),
]
List = Annotated[
    bool, typer.Option("--list", help="List the ids with their needs and costs, and exit.")
]
Known = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        metavar="FILE|known",
        help="JSON report of an earlier run: only new failures count. Or a TOML file of known "
        'failures, `"ID" = "reason"`: one that holds now fails the run. `known`: failures known of '
        "a published version do not count.",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the JSON report instead; --json-file writes it.")
]


def _report(form: str) -> Any:
    return typer.Option(metavar="FILE", help=f"Write {form} report to FILE; - for stdout.")


def takes(flags: Sequence[Flag]) -> Callable[[Given], Given]:
    """Add flags to a command, which gets their values in `**given`."""
    options = [_parameter(flag) for flag in flags]

    def give(command: Given) -> Given:
        signature = inspect.signature(command)
        own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
        by_name = [each.replace(kind=each.KEYWORD_ONLY) for each in (*own, *options)]
        vars(command)["__signature__"] = signature.replace(parameters=by_name)
        return command

    return give


def _parameter(flag: Flag) -> inspect.Parameter:
    parser = _PARSERS.get(flag.kind)
    option = typer.Option(
        flag.option, metavar=flag.metavar, envvar=flag.variable, help=flag.help, parser=parser
    )
    kind: Any = list[str] if flag.is_repeatable else flag.kind
    if flag.default is None:
        kind |= None
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=flag.default,
        annotation=Annotated[kind, option],
    )


def judging(subject: Subject[Any]) -> Callable[..., None]:
    """Return the command that judges one kind of subject."""
    keep_flag = [KEEP] if issubclass(subject.options, OfJudge) else []

    @takes([*flags_of(subject.options), *keep_flag, STRICT])
    def conformance(
        words: Annotated[
            list[str] | None,
            typer.Argument(help=subject.words_help, metavar=subject.words, show_default=False),
        ] = None,
        only: Only = None,
        show_list: List = False,
        baseline: Known = None,
        junit: Annotated[Path | None, _report("a JUnit XML")] = None,
        as_json: AsJson = False,
        json_file: Annotated[Path | None, _report("a JSON")] = None,
        html: Annotated[Path | None, _report("an HTML")] = None,
        sarif: Annotated[Path | None, _report("a SARIF")] = None,
        markdown: Annotated[Path | None, _report("a Markdown")] = None,
        annotations: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE",
                help="Write annotations for GitHub Actions to FILE; - for stdout.",
            ),
        ] = None,
        **given: Any,
    ) -> None:
        with as_misuse(ValueError, OSError):
            cases = select(only or [], subject.cases(), subject.documents)
            if show_list:
                return printing.show_list(subject, cases)
            verdicts, sdk_versions = given.pop(KEEP.name, None), given.get("sdk") or []
            if as_json and json_file:
                raise ValueError(
                    "give --json, which prints the report, or --json-file FILE, not both"
                )
            files = {
                "json": Path("-") if as_json else json_file,
                "junit": junit,
                "html": html,
                "sarif": sarif,
                "markdown": markdown,
                "annotations": annotations,
            }
            places = {kind: file for kind, file in files.items() if file is not None}
            require_places(places)
            accepts_published = baseline is not None and str(baseline) == KNOWN
            if accepts_published and not published.versions(subject.name):
                raise ValueError(f"--baseline {KNOWN}: no published {subject.name} was judged yet")
            require_one(places, verdicts, sdk_versions, only)
            known_failures = (
                load_baseline(baseline, subject.name, {case.id for case in subject.cases()})
                if baseline and not accepts_published
                else None
            )
            judged = list[tuple[str, Results]]()

            def on_done(about: About, results: Results) -> None:
                judged.append((about.target, results))
                if verdicts:
                    keep_verdict(Path(verdicts), subject, about, results)

            asked = Asked(
                files=places,
                strict=given[STRICT.name],
                baseline=known_failures,
                accepts_published=accepts_published,
                shows=len(sdk_versions) < 2,
                on_done=on_done,
            )
            flags = [{**given, "sdk": [version]} for version in sdk_versions] or [given]
            chosen = [sdk.read(subject, words or [], each, tell) for each in flags]
        with as_misuse(OSError, begin="cannot write the report: "):
            codes = [judge_and_report(subject, options, cases, asked) for options in chosen]
        if len(chosen) > 1:
            printing.show_columns(judged)
        raise typer.Exit(max(codes))

    return conformance


def require_one(
    places: Mapping[str, Path], keep: str | None, versions: Sequence[str], only: list[str] | None
) -> None:
    """Raise `ValueError` for a report of several versions, and a kept verdict that is not whole."""
    if places and len(versions) > 1:
        raise ValueError(f"--{next(iter(places))}: a report is of one version: give one --sdk")
    if keep and not versions:
        raise ValueError("--keep: a verdict is kept of a version that anybody can install: --sdk")
    if keep and only:
        raise ValueError("--keep: a verdict is kept of all ids: leave out --only")


def keep_verdict(file: Path, subject: Subject[Any], about: About, results: Results) -> None:
    """Add the verdict on a version to a file of verdicts."""
    recipe, version = sdk.named(subject.name, about.target)
    repeat = f"x402sim conformance {subject.name} --sdk {shlex.quote(about.target)}"
    cases = subject.cases()
    record = published.record_of(about, results, cases, recipe.name, version, repeat)
    published.keep(file, record, cases)


def tell(text: str) -> None:
    """Print a line to stderr."""
    typer.echo(text, err=True)


def judge_of(name: str) -> Any:
    """Return the command of `conformance NAME`: another judge, the site, or a campaign."""
    own = typer.Typer(add_completion=False, rich_markup_mode=None)
    if name == SITE:
        from x402sim.commands import site

        own.command(SITE, help=site.HELP)(site.site)
    elif name == CAMPAIGN:
        from x402sim.commands import campaign

        own.command(CAMPAIGN, help=campaign.HELP)(campaign.campaign)
    else:
        subject = subject_of(name)
        own.command(name, help=subject.help)(judging(subject))
    return made(own)


class Command(TyperCommand):
    """The command of the default subject, or of the subject that its first word names."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **named: Any) -> Any:
        """Return the context of the command of the named subject."""
        name = args[0] if args else ""
        if name == DEFAULT:
            args = args[1:]
        elif name in {*SUBJECTS, SITE, CAMPAIGN}:
            command = judge_of(name)
            named["default_map"] = defaults(command, f"conformance {name}")
            return command.make_context(f"{info_name} {name}", args[1:], *more, **named)
        named["default_map"] = defaults(self, "conformance")
        return super().make_context(info_name, args, *more, **named)


conformance = judging(subject_of(DEFAULT))
