"""`conformance`: judges a service by its URL, or another subject after its name."""

import inspect
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from x402sim.commands.common import AsJson, as_misuse, completing, made, number, whole
from x402sim.commands.configuration import defaults
from x402sim.spec.clauses import CLAUSES
from x402sim.suite import printing, published, sdk
from x402sim.suite.baseline import load as load_baseline
from x402sim.suite.case import select
from x402sim.suite.command import ReportOptions, judge_and_report, require_place
from x402sim.suite.options import KEEP, STRICT, Flag, OfJudge, flags_of
from x402sim.suite.report.conformance import SUFFIXES, About
from x402sim.suite.report.results import Results
from x402sim.suite.subject import DEFAULT, SUBJECTS, Subject, subject as subject_of
from x402sim.text.words import unknown

KNOWN = "known"
"""The word for --baseline that stands for the failures of published versions."""
SITE, CAMPAIGN = "site", "campaign"
"""The words after `conformance` for the commands that make a site of verdicts, and the verdicts."""
OF_EVERY_JUDGE = ("--only", "--list", "--baseline", "--report", "--json", "--strict")
"""The options that the help of the default judge tells for all."""
EPILOG = """
Outcomes: passed, failed, skipped (a need is missing), inconclusive (the check could not be
completed), observed (the specification is silent). Exit codes: 0, every MUST held; 1, a MUST
failed; 2, wrong usage, a subject that cannot be judged, or a MUST is inconclusive.
"""
"""The end of the help."""
_PARSERS: dict[type, Callable[[Any], Any]] = {float: number, int: whole}
Given = TypeVar("Given", bound=Callable[..., None])

Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PREFIX",
        help="Check only ids with this prefix, such as 5 or 7/nonce; repeatable, or "
        "separated by commas.",
        autocompletion=completing(lambda: (clause.id for clause in CLAUSES)),
    ),
]
List = Annotated[
    bool, typer.Option("--list", help="List the ids with their needs and costs, and exit.")
]
Known = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE|known",
        help="Failures that do not count: of a JSON report, of a TOML file of `ID = reason`, or "
        "`known` of published versions.",
    ),
]
Reports = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Write a report: .html, .json, .md (Markdown), .sarif, .xml (JUnit), or .txt "
        "(annotations of GitHub Actions); repeatable.",
    ),
]


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


def judge_command(subject: Subject[Any]) -> Callable[..., None]:
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
        report: Reports = None,
        as_json: AsJson = False,
        **given: Any,
    ) -> None:
        with as_misuse(ValueError, OSError):
            cases = select(only or [], subject.cases(), subject.documents)
            if show_list:
                return printing.show_list(subject, cases)
            verdicts, sdk_versions = given.pop(KEEP.name, None), given.get("sdk") or []
            files = report or []
            for file in files:
                if file.suffix not in SUFFIXES:
                    raise ValueError(f"--report {file}: {unknown('suffix', file.suffix, SUFFIXES)}")
                require_place("--report", file)
            accepts_published = baseline is not None and str(baseline) == KNOWN
            if accepts_published and not published.versions(subject.name):
                raise ValueError(f"--baseline {KNOWN}: no published {subject.name} was judged yet")
            require_one(files or as_json, verdicts, sdk_versions, only)
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

            asked = ReportOptions(
                files=files,
                as_json=as_json,
                strict=given[STRICT.name],
                baseline=known_failures,
                accepts_published=accepts_published,
                shows=len(sdk_versions) < 2,
                on_done=on_done,
            )
            flags = [{**given, "sdk": [version]} for version in sdk_versions] or [given]
            tell = partial(typer.echo, err=True)
            chosen = [sdk.read(subject, words or [], each, tell) for each in flags]
        with as_misuse(OSError, begin="cannot write the report: "):
            codes = [judge_and_report(subject, options, cases, asked) for options in chosen]
        if len(chosen) > 1:
            printing.show_columns(judged)
        raise typer.Exit(max(codes))

    return conformance


def require_one(
    reports: object, keep: str | None, versions: Sequence[str], only: list[str] | None
) -> None:
    """Raise `ValueError` for a report of several versions, and a kept verdict that is not whole."""
    if reports and len(versions) > 1:
        raise ValueError("--report: a report is of one version: give one --sdk")
    if keep and not versions:
        raise ValueError("--keep: a verdict is kept of a version that anybody can install: --sdk")
    if keep and only:
        raise ValueError("--keep: a verdict is kept of all ids: leave out --only")


def keep_verdict(file: Path, subject: Subject[Any], about: About, results: Results) -> None:
    """Add the verdict on a version to a file of verdicts."""
    recipe, version = sdk.named(subject.name, about.target)
    repeat = f"x402sim conformance {subject.name} --sdk {shlex.quote(about.target)}"
    cases = subject.cases()
    installed = sdk.installed(recipe, version)
    record = published.record_of(about, results, cases, recipe.name, version, repeat, installed)
    published.keep(file, record, cases)


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
        told = "x402sim conformance --help"
        epilog = f"Options of every judge (see `{told}`): {', '.join(OF_EVERY_JUDGE)}."
        own.command(name, help=subject.help, epilog=epilog)(judge_command(subject))
    command = made(own)
    for each in command.params if name not in (SITE, CAMPAIGN) else ():
        each.hidden = not {*OF_EVERY_JUDGE}.isdisjoint(each.opts)
    return command


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


conformance = judge_command(subject_of(DEFAULT))
