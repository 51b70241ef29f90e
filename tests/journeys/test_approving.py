"""A job of a privacy officer: a plan, a release with its purpose, its page, the ledger's page, and an audit."""

import html
import re

import pytest
from transcripts import Shell

TITLE, OWNER, NOTE = "Countries and devices", "Web team", "For the public dashboard."
BEFORE = f"""
$ dpunion plan -e 1 -d 1e-6
About this many people must have an item for it to be released:
items each chance 50 % chance 90 %
1 26 32
...
A list made by this plan is (1, 1e-06)-differentially private for adding or removing one user (...
The guarantee is strong: whether a given person's data was used stays in doubt.
Worst case: someone who was 50 % sure ... becomes at most 73.2 % sure, ...
No data was read. These numbers are public.
$ dpunion plan -e 1 -d 1e-6 --html plan.html
...
$ dpunion ledger open budget.db --dataset visits -e 3 -d 1e-5
...
$ dpunion release visits.csv --user id --item country --item device -e 1 -d 1e-6 --ledger budget.db --dataset visits \\
    --title "{TITLE}" --owner "{OWNER}" --note "{NOTE}" --out keys.json --json > run.json
...
$ dpunion report keys.json --out keys.html
...
$ dpunion ledger report budget.db --out ledger.html
...
$ dpunion ledger show budget.db
...
"""
AFTER = """
$ dpunion ledger verify budget.db --receipt "{receipt}"
All 3 rows are in order. The receipt's entry is there. ...
$ dpunion ledger verify budget.db --receipt "{forged}"
...
[5]
$ dpunion audit release --algorithm funnel --trials 500 --no-exact
...
Verdict: nothing was found.
1 algorithm made 15,000 releases from 15 pairs of databases that differ by one person, ...
Finding nothing is evidence, and no proof.
"""


@pytest.fixture
def shell(tmp_path):
    with (tmp_path / "visits.csv").open("w") as file:
        file.write("id,country,device\n")
        file.writelines(f"p{at},{('Chile', 'Ghana')[at % 2]},{('phone', 'desk')[at % 3 == 0]}\n" for at in range(900))
        file.write("p7,Atlantis,phone\n")
    return Shell(tmp_path)


def test_from_a_plan_to_a_signature(shell):
    shell.follow(BEFORE)
    run = shell.json("run.json")
    assert [run["about"][name] for name in ("title", "owner", "note")] == [TITLE, OWNER, NOTE]
    assert (run["released"], run["ledger"]["more"]) == (4, 2)
    check_page(words_of(shell, "keys.html"))
    released = shell.json("keys.json")["items"]
    assert ["Chile", "phone"] in released
    assert "Atlantis" not in shell.text("keys.html"), "a place of one person alone"
    assert "people must have an item" in words_of(shell, "plan.html")
    ledger = words_of(shell, "ledger.html")
    for told in ("33.3 % is spent", "about 2 more like the last one", TITLE, OWNER, NOTE):
        assert told in ledger
    receipt = run["ledger"]["receipt"]
    forged = receipt[:-1] + ("0" if receipt[-1] != "0" else "1")
    shell.follow(AFTER.format(receipt=receipt, forged=forged))


def check_page(page):
    """Title, owner and purpose come first, then what it means for one person and the budget, and then the list."""
    in_order = (TITLE, OWNER, NOTE, "The guarantee is strong", "at most 73.2 % sure", "With it 33.3 %", "Approved by")
    places = [page.index(text) for text in (*in_order, "Search all columns")]
    assert places == sorted(places)


def words_of(shell, name):
    """Return the text of a page."""
    text = re.sub(r"<(style|script)\b.*?</\1>", "", shell.text(name), flags=re.DOTALL)
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))
