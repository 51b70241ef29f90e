"""The commands release, ngrams, report, demo, sample and warm-up."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from dpunion.cli import answers, options
from dpunion.cli.answers import is_watched, print_json, print_result, say, say_lines
from dpunion.cli.help import command
from dpunion.cli.options import FILE, OUTPUT, Argument, Given, Option
from dpunion.cli.records import check_outputs, record_configuration, record_place
from dpunion.errors import AlreadyReleased, BadParameter, LedgerNote

if TYPE_CHECKING:
    from dpunion.releases.release import Release
    from dpunion.requests import Run

MADE_BEFORE = 6
"""The exit code of a release that was made before and whose output is in place."""
FEW = 10
"""A release with fewer items than this is explained."""
ADDS_UP = (
    "This release was not charged to a ledger. Budgets of releases from the same data add up: dpunion ledger --help."
)
AS_GIVEN = ("user", "epsilon", "delta", "weak_budget", "query", "null_users", "normalize", "sort", "unsafe_test_key")
FIRST_ONES = "; the terminal shows the first. --out FILE keeps all, but a second release spends the budget again."

RELEASE_HELP = f"""Release the items that many users share, without revealing any single user.

SOURCE is one or more files or quoted patterns: Parquet, Arrow IPC, CSV, TSV or JSONL (also .gz, .zst); a folder of
Parquet files; both also at s3://, gs:// or abfs://; a Delta or Iceberg table; a database
(postgresql://..., SQLite or DuckDB file) or Parquet files with --query; or - for standard input.

[bold]Examples[/bold]
  dpunion release posts.parquet --user author --item word -e 1 -d 1e-6 --out vocabulary.parquet
  dpunion release 'logs/*.csv.gz' --user uid --item query -e 2 -d 1e-7 > queries.txt
  dpunion release reviews.jsonl --user id --text body -e 1 -d 1e-6 --out words.csv --out words.json
  dpunion release visits.csv -u id --item country --item device -e 1 -d 1e-6 --out keys.csv
  dpunion release posts.parquet -u author -i word -e 1 -d 1e-6 --counts --statement --out popular.csv
  dpunion release hdfs:///logs --engine spark --master yarn -u uid -i query -e 1 -d 1e-9 --out-folder hdfs:///q
  dpunion release orders.csv -u customer -i product -e 1 -d 1e-6 --candidates catalogue.csv --out sold.csv
  dpunion release new.csv -u id -i word -e 1 -d 1e-6 --known old.parquet --ledger budget.db --dataset posts
  dpunion release posts.parquet -u author -i word --ledger budget.db --dataset logs --scheduled -o week-8.parquet

{options.ALGORITHM_HELP}

[bold]Exit codes[/bold]: 0 done, 1 a bug in dpunion, 2 a bad option, 3 bad data, 4 cannot write, 5 the ledger refused,
6 made before (the output is in place, and nothing was charged), 7 no scheduled release is due, 130 interrupted."""

NGRAMS_HELP = """Release n-grams of the users' texts, length by length, privately (DPNE and improvements).

It releases single tokens first, then n-grams whose two parts were released. Longer ones may be spurious, that is
written by nobody; the statement says how many to expect at most.

[bold]Examples[/bold]
  dpunion ngrams posts.jsonl --user author --text body --longest 3 -e 1 -d 1e-6 --out ngrams.parquet
  dpunion ngrams posts.parquet -u author -t body --longest 2 --first weighted-gaussian -e 3 -d 1e-5
  dpunion ngrams hdfs://posts --engine spark --master yarn -u author -t body -e 1 -d 1e-9 -o grams.csv

To release all lengths as one set without spurious n-grams: [cyan]dpunion release --text body --ngrams 1-3[/cyan]."""

REPORT_HELP = """Turn a release into a web page to read and sign: what it means for one person, the list, and the plan.

[bold]Examples[/bold]
  dpunion release posts.parquet -u author -i word -e 1 -d 1e-6 --title "Words" --out release.json
  dpunion report release.json --out release.html

The page needs no network and works on desktops, phones, in dark mode and in print."""

DEMO_HELP = """Make a private release from the bundled sample and show what it looks like.

The sample says which Debian package depends on which; a package plays the part of a person."""

SAMPLE_HELP = """Copy the bundled sample data into a folder, for the examples in the documentation.

It says which Debian package depends on which: its columns are [cyan]user[/cyan] and [cyan]item[/cyan], and a package
plays the part of a person.

[bold]Examples[/bold]
  dpunion sample
  dpunion release debian_depends.parquet --user user --item item -e 1 -d 1e-6"""

LISTS_HELP = """Show the public lists that --candidates takes by name: words of languages, countries, currencies.

[bold]Examples[/bold]
  dpunion lists
  dpunion release posts.jsonl -u author --text body -e 1 -d 1e-6 --candidates english --out frequent.csv"""

WARM_UP_HELP = """Compile everything in advance, so that no release has to. Use it after installing and in images.

The compiled code is stored in a folder of the user who runs this: $XDG_CACHE_HOME/dpunion, or ~/.cache/dpunion. In an
image, run it as the user who will make releases, and on the same kind of processor.

[bold]Examples[/bold]
  dpunion warm-up"""


@command(
    "release",
    RELEASE_HELP,
    options.reading,
    options.items,
    options.privacy_or_schedule,
    options.shared,
    options.schedule,
    options.algorithm,
    options.counts,
    [options.drop_doubtful],
    options.engine,
    options.running,
)
def release_command(**values: Any) -> None:
    """Release the items that many users share, without revealing any single user."""
    given = Given(**values)
    options.check_items(given)
    own = options.items.values(given) | ({"item": given.item[0]} if len(given.item) == 1 else {})
    kept = ("unsafe_test_key", "out_folder", "drop_doubtful", "scheduled", "on", "current", "earlier")
    own |= {name: getattr(given, name) for name in kept}
    _make(given, own, {**options.build_algorithm(given), **options.build_items(given)})


@command(
    "ngrams",
    NGRAMS_HELP,
    options.reading,
    options.privacy,
    [options.text],
    options.shared,
    options.counts,
    options.engine,
    [options.longest],
    options.ngrams,
    [options.normalize],
    options.running,
)
def ngrams_command(**values: Any) -> None:
    """Release n-grams of people's texts, length by length."""
    given = Given(**values)
    own = {"text": given.text, "normalize": given.normalize, "unsafe_test_key": given.unsafe_test_key}
    own |= {"out_folder": given.out_folder, "longest": given.longest, **options.ngrams.values(given)}
    _make(given, own, {"algorithm": options.build_ngrams(given), "item": options.build_words(given)})


def _make(given: Given, own: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Make the release, record its options, and say where it is.

    own: the options of this command alone, for the record. wanted: the algorithm and the items.
    """
    from dpunion.pipeline import release
    from dpunion.releases.about import About
    from dpunion.requests import Folder

    if given.out_folder is not None and (given.out or given.as_json):
        raise BadParameter(
            "--out-folder leaves the items on the cluster.", "Leave out --out and --json, or leave out --out-folder."
        )
    options.check_engine(given)
    targets = list(given.out)
    place = record_place(targets, given.out_folder)
    if given.out_folder is None and (given.as_json or not targets):
        answers.check_standard_output()
    read = {"source": list(given.source), "known list": own.get("known"), "list of stop words": given.stop_words}
    read["list of candidates"] = list(own.get("candidates", ()))
    check_outputs(targets, place, read | {"ledger": given.ledger, "configuration": given.config})
    source, charge = options.build_source(given), options.build_charge(given)
    about = About(given.title or "", given.owner or "", given.note or "")
    try:
        with run_with_progress(given) as run:
            made = release(
                source,
                counts=options.build_counts(given),
                out=targets if given.out_folder is None else Folder(given.out_folder),
                charge=charge,
                run=dataclasses.replace(run, about=about),
                **{name: getattr(given, name) for name in AS_GIVEN},
                **wanted,
            )
    except AlreadyReleased as already:
        answer_again(already, targets, overwrite=given.force, as_json=given.as_json)
    with delivering(made, [made.stored] if made.stored else targets):
        first = (options.reading, options.privacy, options.texts, options.ledger)
        recorded = {key: value for group in first for key, value in group.values(given).items()}
        recorded |= options.engine_record(given) | options.counts.values(given) | options.about.values(given)
        record_configuration(place, recorded | {"out": given.out, "sort": given.sort} | own, made.plan)
        answer_release(made, targets, as_json=given.as_json, whole=given.statement)


@contextlib.contextmanager
def run_with_progress(given: Given) -> Iterator[Run]:
    """Yield how the release is run, with progress; on Spark, in a log, one line for each step."""
    import pyarrow as pa

    from dpunion.requests import Run

    # Arrow would take over signals while it parses in the main thread, and lose one in some hundred.
    pa.enable_signal_handlers(False)
    with answers.progress_bar(in_log=given.engine == "spark") as progress:
        yield Run(given.memory_limit, given.threads, given.shards, progress, given.force)


@contextlib.contextmanager
def delivering(released: Release, written: Sequence[object]) -> Iterator[None]:
    """Add a note to errors inside: the charge was settled and stays, and the items are in these places."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        entry = released.about.charged
        if entry is not None:
            where = f"The release is in {' and '.join(map(str, written))}." if written else "The items are lost."
            stays = (
                f"The charge of ({entry.epsilon:g}, {entry.delta:g}) on {entry.dataset!r} stays: entry {entry.entry}."
            )
            facts = dataclasses.asdict(entry) | {"charged": True, "delivered": bool(written)}
            error.add_note(LedgerNote(f"{stays} {where}", facts))
        raise


def answer_release(made: Release, targets: Sequence[Path], *, as_json: bool, whole: bool) -> None:
    """Print a release, or say where it was written, and what it guarantees; whole: say the whole statement."""
    from dpunion.releases.formats import table_lines, text_line
    from dpunion.releases.release import SHOWN

    if as_json:
        values = {"ledger": None} | made.to_dict()
        if targets:
            values.pop("numbers", None)  # they are in the files, next to the items
            values["released"] = len(values.pop("ngrams" if made.results else "items"))
            values["written"] = [str(target) for target in targets]
        print_json(values)
        return
    where = f" to {made.stored or ' and '.join(map(str, targets)) or 'standard output'}."
    if made.stored is None and not targets:
        is_seen = answers.is_terminal(sys.stdout)
        # With counts, people get numbers below each other; programs always get tabs.
        lines = table_lines(made) if is_seen and made.totals is not None else map(text_line, made.rows())
        if is_seen and made.about.charged is None:  # making a charged release again would be charged again
            lines, where = iter([*preview(made), ""]), FIRST_ONES if len(made) > SHOWN else "."
        print_result("".join(f"{line}\n" for line in lines))
    elif targets and is_watched() and len(made):
        say_lines([*preview(made), ""])
    say("\n".join(summarize(made, where, whole=whole)))
    if made.stored is None and len(made) < FEW and made.guaranteed:
        from dpunion.chances import needed_sentence

        say(needed_sentence(made.plan))
    if made.about.charged is None and made.guaranteed and is_watched():
        say(ADDS_UP)


def preview(made: Release) -> Iterator[str]:
    """Yield the first rows of a release for a person."""
    from dpunion.releases.formats import table_lines
    from dpunion.releases.release import SHOWN

    left = len(made) - SHOWN
    yield from (row.rstrip() for row in table_lines(made, SHOWN if left > 0 else None))
    yield from [f"… and {left:,} more"] if left > 0 else []


def summarize(made: Release, where: str, *, whole: bool = False) -> list[str]:
    """Say what was released (where: how that sentence ends) and guaranteed, and warnings or the whole statement."""
    from dpunion.budget import Strength, guarantee
    from dpunion.releases.statements import count_everybody, expected_mistakes
    from dpunion.text.splitting import PLAIN

    sizes = ", ".join(f"{one.released:,} of length {one.length}" for one in made.results)
    unit = ("n-gram" if sizes else "item") + "s"[: len(made.items) != 1] + (f" ({sizes})" if sizes else "")
    lines = [f"Released{where}" if made.stored else f"Released {len(made):,} {unit}{where}"]
    if whole or not made.guaranteed:
        return [*lines, made.statement]
    plan, totals, charged = made.plan, made.totals, made.about.charged
    lines.append(f"{made.statement.splitlines()[0]} --statement explains it.")
    if plan.budget.strength is Strength.WEAK:
        lines.append(guarantee(plan.budget)[1])
    if plan.candidates is not None and plan.candidates.listed:
        lines.append(expected_mistakes(plan.candidates))
    if spurious := sum(one.spurious for one in made.results):
        lines.append(f"At most {spurious:.3g} of them are expected to be spurious, that is, written by nobody.")
    if totals is not None:
        lines.append(count_everybody(totals))
    if made.gone:
        lines.append(f"Items of the previous release that are not in this list: {len(made.gone):,}.")
    unsplit = PLAIN.notes_on(made.items) if len(made.columns) == 1 else ()
    return lines + [note for note in made.notes if note in unsplit or (charged and charged.receipt in note)]


def answer_again(already: AlreadyReleased, targets: Sequence[Path], *, overwrite: bool, as_json: bool) -> NoReturn:
    """Answer with the stored release: say where its files are, and copy one to each target."""
    from dpunion.engines.publishing import copy_earlier
    from dpunion.ledger.fingerprints import describe_earlier

    places, copied = copy_earlier(already, targets, overwrite=overwrite)
    changed = " The source has changed since." if already.source_changed else ""
    say(f"This release was made before, as entry {already.entry}: {', '.join(places)}.{changed}")
    if copied:
        say(f"It was copied to {' and '.join(map(str, copied))}.")
    again = " Use --charge-again to make it again." if "--charge-again" in already.remedy else ""
    say(f"Nothing was charged.{again}")
    if as_json:
        print_json(describe_earlier(already) | {"copied": [str(target) for target in copied]})
    raise click.exceptions.Exit(MADE_BEFORE)


@command(
    "report",
    REPORT_HELP,
    [Argument("release", "Release file (.json).", type=FILE)],
    [Option("--out -o", "Output page. Default: next to the release.", FILE, heading=OUTPUT), options.force],
)
def report_command(release: Path, out: Path | None, force: bool) -> None:
    """Turn a release into a page."""
    from dpunion.addresses import public_address
    from dpunion.errors import SourceNotFound
    from dpunion.reading.locate import refuse_overwriting
    from dpunion.releases.release import Release
    from dpunion.report import check_page, release_page, write_page

    target = out or release.with_suffix(".html")
    check_page(target, overwrite=force)
    refuse_overwriting(target, {"release": release})
    if not release.is_file():
        raise SourceNotFound(
            f"There is no file {public_address(release)}.", "Write a release as .json first, with --out release.json."
        )
    write_page(target, release_page(Release.from_json(release.read_text("utf-8", "replace"))), overwrite=force)
    click.echo(f"Written to {target}.", err=True)


@command("demo", DEMO_HELP, [Option("--out -o", "Output file of the release, if wanted.", FILE), options.force])
def demo_command(out: Path | None, force: bool) -> None:
    """Make a release from the bundled sample and show it."""
    from dpunion.pipeline import release
    from dpunion.releases.formats import check_target
    from dpunion.requests import Run
    from dpunion.samples import debian_depends

    if out is not None:
        check_target(out, overwrite=force)
        check_outputs([out], None, {"source": debian_depends()})
    shown = "$ dpunion release debian_depends.parquet --user user --item item --epsilon 1 --delta 1e-6"
    print_result(f"{shown} --out {out}\n\n" if out else f"{shown}\n\n")
    with answers.progress_bar() as progress:
        run = Run(progress=progress)
        released = release(debian_depends(), user="user", item="item", epsilon=1.0, delta=1e-6, run=run)
        if out is not None:
            released.write(out, overwrite=force)
    summary = summarize(released, f" to {out}." if out else ".")
    more = "To make it yourself: dpunion sample, then the command above with --out FILE. See dpunion release --help."
    print_result(answers.wrap("\n".join([*preview(released), "", *summary, "", more, ""]), sys.stdout))


@command(
    "sample",
    SAMPLE_HELP,
    [
        Argument("folder", "Target folder. Default: the current folder.", metavar="FOLDER", type=FILE, default=Path()),
        options.force,
    ],
)
def sample_command(folder: Path, force: bool) -> None:
    """Copy the bundled sample into a folder."""
    from dpunion.files import atomic_file
    from dpunion.samples import debian_depends

    target = folder / debian_depends().name
    with debian_depends().open("rb") as sample, atomic_file(target, overwrite=force) as file:
        shutil.copyfileobj(sample, file)
    say(f"Written to {target}: which Debian package (user) depends on which (item).")


@command("lists", LISTS_HELP, [options.as_json])
def lists_command(as_json: bool) -> None:
    """Show the public lists that have a name."""
    from dpunion.samples import LISTS, describe_lists

    if as_json:
        print_json({name: dataclasses.asdict(one) for name, one in LISTS.items()})
    else:
        print_result(f"{describe_lists()}\n")


@command("warm-up", WARM_UP_HELP, [options.quiet])
def warm_up_command(quiet: bool) -> None:  # noqa: ARG001 - `answering` reads it
    """Compile everything in advance."""
    from dpunion.warm_up import warm_up

    began = time.monotonic()
    with answers.progress_bar() as show:
        compiled, place = warm_up(lambda job, done: show(f"compiling: {job}", done))
    found = f"{compiled} kernels were compiled" if compiled else "Everything was compiled already"
    say(f"{found}, and stored in {place} ({time.monotonic() - began:.0f} s).")
