"""The page of a ledger: each dataset's budget, how far the rest reaches, and the releases that spent it."""

from __future__ import annotations

from collections.abc import Iterator

from dpunion.budget import permitted
from dpunion.ledger import Account, Composition, Entry, EntryState, Overview, Verification
from dpunion.releases.formats import escape_controls
from dpunion.report.pages import render_page
from dpunion.report.tables import Cell, Fact, Gauge, Section, Table, number, percent

SUMS = {
    Composition.ADDITIVE: "Their ε and δ are added up",
    Composition.TIGHT: "What they cost together is added up by tight composition",
}
STATES = {
    EntryState.SETTLED: "a release",
    EntryState.UNSETTLED: "started, not settled: counts as spent",
    EntryState.CANCELLED: "cancelled: nothing was charged",
}
TOTALS = Section(
    "How to read this",
    (
        "A budget bounds what all releases from a dataset together can reveal about one person, however many "
        "there are. It was fixed when the dataset was opened and cannot be raised. The ledger charges a "
        "release before any data is read, and the charge stays if the run fails while it reads.",
        "The ε and δ of an entry are those that its release would have alone. By additive composition they add up. By "
        "tight composition they do not: the limit of the dataset holds for all its entries together.",
        "Owner, title and purpose are those given with the release (--owner, --title, --note). dpunion never "
        "looks up names of users or machines.",
    ),
)
CHECKING = (
    "Each row contains the hash of the row before, so that nobody can change or remove a row unnoticed. Keep "
    "a copy of the head elsewhere: only the head, or the receipt of a release, shows that rows were cut off "
    "at the end."
)


def ledger_page(overview: Overview, checked: Verification, name: str) -> str:
    """Return the page of a ledger. It names owners, sources and outputs: it is for those responsible for the data.

    Guarantees: what others wrote into the ledger is shown as text; no browser parses it as HTML or runs it.
    """
    spent = [one for one in overview.entries if one.state is not EntryState.CANCELLED]
    chain: tuple[tuple[Cell, ...], ...] = (("rows", number(checked.rows)), ("head", checked.head))
    return render_page(
        title="Privacy budgets",
        lead=f"The ledger {escape_controls(name)}: how much of each budget is spent, on which releases, and how "
        "much is left.",
        facts=(
            Fact("datasets", number(len(overview.accounts))),
            Fact("releases charged", number(len(spent))),
            Fact("last entry", escape_controls(spent[-1].written[:10]) if spent else "–"),
            Fact("chain of entries", "in order" if checked.good else "BROKEN"),
        ),
        warning=None if checked.problem is None else escape_controls(checked.problem),
        sections=(
            *(dataset_section(overview, one) for one in overview.accounts),
            TOTALS,
            Section("For checking", (CHECKING,), (Table("The chain", ("what", "value"), chain),), folded=True),
        ),
    )


def dataset_section(overview: Overview, account: Account) -> Section:
    """Say how much a dataset may spend and how much is left, and list its entries, the last one first."""
    values = account.to_dict()
    entries = [one for one in reversed(overview.entries) if one.dataset == account.name]
    share, reach = account.spent_share, overview.reach(account)
    text = (
        f"All its releases together are limited to ε = {number(values['epsilon'])} and δ = "
        f"{number(values['delta'])}. {SUMS[account.composition]}. {percent(share)} is spent; what is left: "
        f"{reach}.",
        f"The worst case, once all of it is spent: {permitted(values['epsilon'], values['delta'])}.",
    )
    parts: list[Gauge | Table] = [*calendar_parts(overview, account)]
    if entries:
        columns = ("entry", "day", "what", "who", "what for", "ε, δ", "outcome")
        rows = tuple(entry_row(one) for one in entries)
        parts.append(Table(f"Releases from {account.name}", columns, rows, stacked=True))
    return Section(account.name, text, tuple(parts))


def calendar_parts(overview: Overview, account: Account) -> Iterator[Gauge | Table]:
    """Draw what is spent and what is left; of a schedule also the next release, and the calendar below it."""
    schedule, caps, left = account.schedule, account.caps, account.remaining
    title = f"The budget of {account.name}"
    if schedule is None:
        yield Gauge(title, (("spent", account.spent_share),), "left")
        return
    made = [one for one in overview.entries if one.dataset == account.name and one.release and not one.is_cancelled]
    coming, rows, following = overview.to_come(account), [], []
    for week in schedule.releases:
        done = [one for one in made if one.release == week]
        part = sum(one.charge.mu_squared for one in done)
        if done:
            how = "made" if done[-1].is_settled else "charged, but not settled,"
            names = [f"#{one.number}" + " (not settled)" * (not one.is_settled) for one in done]
            charged = f"entr{'ies' if done[1:] else 'y'} {', '.join(names)}"
            state = f"{how} in week {done[-1].details['schedule']['week']}: {charged}"
        elif week in coming:
            share = schedule.share(left, week)
            left, part, state = left - share, share.mu_squared, "to come"
            following.append((f"next: week {week}", part / caps.mu_squared))
        else:
            state = "left out: nothing was charged"
        rows.append((f"week {week}", str(schedule.first_day(week)), percent(part / caps.mu_squared), state))
    spent = ("spent", account.spent.mu_squared / caps.mu_squared)
    yield Gauge(title, (spent, *following[:1]), "later" if following[1:] else "left")
    note = f"A release can be made from its day on, until the next one is due. Weeks are counted from {schedule.start}."
    columns = ("release", "from", "budget", "state")
    yield Table(f"The calendar of {account.name}", columns, tuple(rows), note, stacked=True)


def entry_row(entry: Entry) -> tuple[Cell, ...]:
    """Return an entry as a row; a dash stands for a missing title, owner or note."""
    values = entry.to_dict()
    sources = ", ".join(values["sources"])
    made = f"{', '.join(values['columns']) or 'items'}{f' of {sources}' if sources else ''}"
    how = f", by {values['algorithm']}" if values["algorithm"] else ""
    what = f"{values['title']}{how} ({made})" if values["title"] else f"{made}{how}"
    outputs = ", ".join(one["path"] or f"SHA-256 {one['sha256'][:16]}" for one in values["outputs"])
    outcome = f"{STATES[entry.state]}{f': {outputs}' if outputs else ''}"
    texts = [escape_controls(text) or None for text in (what, values["owner"], values["note"])]
    head: tuple[Cell, ...] = (f"#{entry.number}", escape_controls(entry.written[:10]), *texts)
    return (*head, f"{number(values['epsilon'])}, {number(values['delta'])}", escape_controls(outcome))
