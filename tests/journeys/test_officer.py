"""A privacy officer's way: plan, release, the page to sign, the ledger's page, a receipt, the verdict of an audit."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from dpunion import samples
from dpunion.cli import app

pytestmark = pytest.mark.full


def run(line, *, code=0):
    result = CliRunner().invoke(app, shlex.split(line), env={"COLUMNS": "100", "TERM": "dumb"})
    assert result.exit_code == code, result.output
    return result


def test_from_the_plan_to_the_signed_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    # Before any data is read: what a budget can do, as a page.
    run("plan -e 1 -d 1e-6 -a weighted-gaussian --html plan.html")
    plan = (tmp_path / "plan.html").read_text()
    for part in ("How many people must hold an item", "What it would mean for one person", "at most 73.2 % sure"):
        assert part in plan

    # The total is fixed, then one release is charged to it, with who and what for.
    run("ledger open budget.db --dataset packages -e 3 -d 1e-5")
    run(
        f"release {samples.debian_depends()} -u user -i item -e 1 -d 1e-6 --ledger budget.db --dataset packages "
        "--title 'Packages that others depend on' --owner 'Example team' --note 'For the tutorial.' "
        "--out packages.csv --out packages.json"
    )
    released = json.loads((tmp_path / "packages.json").read_text())
    receipt = released["ledger"]["receipt"]

    # The page to sign says it all before the list.
    run("report packages.json")
    page = (tmp_path / "packages.html").read_text()
    parts = ("Packages that others depend on", "Example team", "For the tutorial.", receipt, "at most 73.2 % sure")
    places = [
        page.index(part) for part in (*parts, "<h2>What it does not cover", "33.3 % of the budget", "Approved by")
    ]
    assert places == sorted(places)
    assert places[-1] < page.index('id="items"')

    # The ledger's page, and the receipt on the signed one.
    run("ledger report budget.db --out ledger.html")
    ledger = (tmp_path / "ledger.html").read_text()
    for part in ("Example team", "For the tutorial.", "about 2 more like the last one", "in order"):
        assert part in ledger
    assert "The receipt's entry is there." in run(f"ledger verify budget.db --receipt {receipt}").stdout

    # Somebody runs it again: nothing is charged.
    again = run(
        f"release {samples.debian_depends()} -u user -i item -e 1 -d 1e-6 --ledger budget.db --dataset packages "
        "--title 'Another title' --out packages.csv",
        code=6,
    )
    assert "Nothing was charged." in again.stderr
    assert "about 2 more like the last one" in run("ledger show budget.db").stdout

    # And has anybody checked it?
    audit = json.loads(run("audit release -a weighted-gaussian --trials 1000 --no-exact --json").stdout)
    assert audit["holds"] is True
    assert "Finding nothing is evidence, and no proof." in audit["verdict"]
