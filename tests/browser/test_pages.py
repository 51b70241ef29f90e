"""Pages in a real browser: complete, inert, and they do what they show. Needs chromium and its driver."""

import datetime as dt
import itertools
import json
import math
import os
import re
import shutil
import time
from pathlib import Path

import pytest

import dpunion
from dpunion import report
from dpunion.ledger import Amounts, Ledger, Schedule
from dpunion.plans.counts import Counted, Estimate, Totals
from dpunion.releases.about import About, Charged
from dpunion.releases.formats import join_key
from dpunion.releases.release import Release, with_items
from dpunion.report.pages import FIRST_ROWS

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars",
)  # fmt: skip
DESKTOP, PHONE = (1200, 900), (390, 844)

HOSTILE = (
    "<script>window.hacked = 1</script>", "</script><script>window.hacked = 2</script>",
    "<img src=x onerror='window.hacked = 3'>", "<!--<script>", '"><b id=injected>bold</b>', "=cmd|' /C calc'!A0",
    "\x1b[31mred\x1b[0m", "safe\u202egnp.exe", "\u2066isolated\u2069", "two\u2028lines", " spaces ", "", "q\"uote's",
    "{{7*7}}", "javascript:alert(1)", "می‌خواهم",
)  # fmt: skip
WORDS = tuple(sorted({f"{start}{at}" for at in range(250) for start in ("apple", "Banana", "kiwi ", "é")}))
COLUMNS = ("country", "<b>device</b>", "query")
KEYS = tuple(sorted(itertools.product(("AU", "DE"), ("ios", "tab\tlet"), (f"query {at}" for at in range(80)))))
PLAN = dpunion.plan("policy-gaussian", epsilon=1.0, delta=1e-6)
COUNTED_PLAN = dpunion.plan("policy-gaussian", epsilon=1.0, delta=1e-6, counts=True)


def counted_page(texts, people, columns=("item",)):
    """Return the page of a release in which this many people have each item, the numbers right to a third."""
    numbers = tuple(people), tuple(max(1, one * 2 // 3) for one in people), tuple(one * 4 // 3 for one in people)
    totals = Totals(Estimate(9_000, 8_800, 9_200), Estimate(400, 200, 600), 0.05, 1.2)
    draft = Release((), COUNTED_PLAN, guaranteed=True, columns=columns)
    return report.release_page(with_items(draft, texts, Counted(*numbers, totals)))


ENTRY = Charged(
    "b.db#2", "b.db#2:0123456789abcdef", "posts", 1.0, 1e-6, "tight", 10.0, 1e-5, 0.25, 0.35, 6, "2026-11-16"
)
NOTE = "For the help pages: words that many people use, so that what they type can be completed."
TOLD = About("Words of the week, of all posts in the forum", "Search team, Jane Doe", NOTE, "2026-11-16", ENTRY)


def told_ledger(folder):
    """Return the page of a ledger with a dataset, one without entries, a schedule, and what people said of releases."""
    ledger = Ledger.open(folder / "budget.db", create=True)
    ledger.create_dataset("posts", 10.0, 1e-5, "tight")
    ledger.create_dataset("a-dataset-with-a-long-name-and-nothing-in-it", 1.0, 1e-6)
    about = TOLD.words | {"sources": ["/data/forum/posts/week=2026-W46/part-*.parquet"], "columns": ["country", "word"]}
    for number in range(3):
        with ledger.reserve("posts", PLAN, f"{number:064x}", about=about) as reservation:
            reservation.start_reading()
            reservation.settle(digest="0" * 64)
    # Week 1 died and was paid once more, week 2 was left out, week 4 was made, and others are to come.
    ledger.create_dataset("queries", 3.0, 1e-6, schedule=Schedule(52, start="2026-01-05"))
    (folder / "list.csv").write_text("item,since\n")
    for number, day in enumerate(("2026-01-05", "2026-01-05", "2026-01-26")):
        due = ledger.find_due("queries", dt.date.fromisoformat(day))
        made = ledger.reserve("queries", Amounts(), f"{number:063x}a", about=about, due=due, charge_again=True)
        if number:
            made.settle([folder / "list.csv"])
    return report.ledger_page(ledger.overview(), ledger.verify(), ledger.name)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder with the pages that are tested."""
    folder = tmp_path_factory.mktemp("pages")
    algorithms = ("policy-gaussian", "funnel <b>")
    bars = report.Chart(
        "Items released",
        report.Axis("algorithm", report.AxisScale.NAMES),
        report.Axis("items"),
        (report.Series("ε = 3", algorithms, (16_884.0, 21_303.0)), report.Series("ε = 1", algorithms[1:], (10_221.0,))),
        kind=report.ChartKind.BAR,
    )
    table = report.Table("Items", ("algorithm", "items"), (("funnel", 21_303),))
    texts = {
        "release": report.release_page(Release(WORDS, PLAN, guaranteed=True)),
        "hostile": report.release_page(Release(tuple(sorted(HOSTILE)), PLAN, guaranteed=False)),
        "keys": report.release_page(Release(KEYS, PLAN, True, columns=COLUMNS)),
        "huge": report.release_page(
            Release(tuple(sorted(f"w{at * 7919 % 100_003}" for at in range(100_000))), PLAN, True)
        ),
        "counted": counted_page(WORDS, [3 + at * at // 100 for at in range(len(WORDS))]),
        "counted-hostile": counted_page(HOSTILE, range(1, len(HOSTILE) + 1)),
        "counted-keys": counted_page([*map(join_key, KEYS)], [at + 1 for at in range(len(KEYS))], COLUMNS),
        "counted-huge": counted_page([f"w{at:06}" for at in range(100_000)], range(1, 100_001)),
        "told": report.release_page(Release(WORDS, PLAN, guaranteed=True, about=TOLD)),
        "ledger": told_ledger(folder),
        "plan": report.plan_page(
            PLAN, epsilons=(1.0, 2.0), set_sizes=(1, 10), algorithms=("weighted-gaussian", "dp-sips")
        ),
        "lab": report.lab_page("A study", [report.Section("By algorithm", (), (bars, table))]),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless browser that logs its console and all requests; or a skip that says why."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()


class Page:
    """One opened page."""

    def __init__(self, browser, path: Path, size=DESKTOP, *, dark=False):
        self.browser = browser
        self.address = path.as_uri()
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
        for kind in ("browser", "performance"):
            browser.get_log(kind)
        browser.get(self.address)

    def run(self, code, *arguments):
        return self.browser.execute_script(code, *arguments)

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def shown(self):
        return self.run("return [...document.querySelectorAll('#list li')].map(line => line.textContent)")

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def set(self, selector, value, event):
        code = (
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event(arguments[2]))"
        )
        self.run(code, selector, value, event)

    def requests(self):
        entries = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        sent = [entry["params"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def hover(self, selector, part_x, part_y=0.5):
        """Move the mouse over the element, at a part of its width and height."""
        box = self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]",
            selector,
        )
        place = {"x": box[0] + part_x * box[2], "y": box[1] + part_y * box[3]}
        self.browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", **place})
        return place

    def tip(self):
        return self.run("return document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")


@pytest.mark.parametrize("name", ["release", "hostile", "huge", "counted", "counted-hostile", "plan", "lab"])
def test_no_console_message_and_no_request(browser, pages, name):
    page = Page(browser, pages / f"{name}.html")
    page.run("for (const e of document.querySelectorAll('details')) e.open = true")
    assert browser.get_log("browser") == []
    assert set(page.requests()) <= {page.address, "data:,"}


def test_an_injected_script_could_send_nothing(browser, pages):
    """The page's policy refuses requests, images and inline handlers: shown by trying them."""
    page = Page(browser, pages / "release.html")
    outcome = browser.execute_async_script(
        "const done = arguments[0]; const image = new Image();"
        "image.onload = () => done('loaded'); image.onerror = () => "
        "fetch('http://127.0.0.1:9/').then(() => done('fetched'), () => done('refused'));"
        "image.src = 'http://127.0.0.1:9/x.png'"
    )
    assert outcome == "refused"
    page.run("document.querySelector('h1').insertAdjacentHTML('beforeend', '<b onclick=\"window.hacked = 1\">x</b>')")
    page.run("document.querySelector('h1 b').click()")
    assert page.run("return window.hacked") is None
    messages = " ".join(entry["message"] for entry in browser.get_log("browser"))
    assert messages.count("Content Security Policy") >= 3


def test_search_narrows_the_list(browser, pages):
    page = Page(browser, pages / "release.html")
    assert len(page.shown()) == 200
    assert page.text("#count") == "1,000 items"
    page.find("#search").send_keys("BANANA24")
    expected = {f"Banana{at}" for at in [24, *range(240, 250)]}
    assert set(page.shown()) == expected
    assert page.text("#count") == "11 of 1,000 items"
    page.set("#search", "nothing like that", "input")
    assert page.shown() == []
    assert page.text("#count") == "0 of 1,000 items"
    page.set("#search", "É1", "input")
    assert set(page.shown()) == {word for word in WORDS if word.startswith("é1")}


def test_sort_reorders_the_list(browser, pages):
    page = Page(browser, pages / "release.html")
    assert page.shown()[:3] == ["apple0", "apple1", "apple2"]
    page.set("#sort", "z-a", "change")
    assert page.shown()[:2] == ["kiwi 249", "kiwi 248"]
    page.set("#sort", "short", "change")
    assert page.shown()[:2] == ["é0", "é1"]
    page.set("#sort", "long", "change")
    assert page.shown()[0] == "Banana100"
    page.set("#search", "apple", "input")
    assert page.shown()[0] == "apple100"


def test_every_item_is_on_exactly_one_page(browser, pages):
    page = Page(browser, pages / "release.html")
    seen = page.shown()
    assert page.text("#place") == "page 1 of 5"
    for _ in range(4):
        page.find("#next").click()
        seen += page.shown()
    assert sorted(seen) == sorted(WORDS)
    assert page.find("#next").get_attribute("disabled")
    page.find("#previous").click()
    assert page.text("#place") == "page 4 of 5"


@pytest.mark.parametrize(("name", "most"), [("huge", 3_000), ("counted-huge", 4_500)])
def test_a_hundred_thousand_items_stay_smooth(browser, pages, name, most):
    started = time.monotonic()
    page = Page(browser, pages / f"{name}.html")
    assert len(page.shown() or shown_keys(page)) == 200
    assert time.monotonic() - started < 10.0
    code = (
        "const t = performance.now(), e = document.querySelector(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event(arguments[2])); return performance.now() - t"
    )
    for selector, value, event in [("#search", "99", "input"), ("#sort", "long", "change"), ("#search", "", "input")]:
        assert page.run(code, selector, value, event) < 1000.0
    assert page.run("return document.querySelectorAll('*').length") < most


def test_hostile_items_are_inert_and_visible(browser, pages):
    page = Page(browser, pages / "hostile.html")
    shown = page.shown()
    assert len(shown) == len(HOSTILE)
    assert page.run("return window.hacked") is None
    assert page.run("return document.querySelector('#list img, #list b, #list script, #injected')") is None
    assert page.run("return [...document.querySelectorAll('script')].length") == 2
    for text in ("<script>window.hacked = 1</script>", "=cmd|' /C calc'!A0", "{{7*7}}", "javascript:alert(1)"):
        assert text in shown
    assert "\\u001b[31mred\\u001b[0m" in shown
    assert "safe\\u202egnp.exe" in shown
    assert "\\u2066isolated\\u2069" in shown
    assert "two\\u2028lines" in shown
    assert "\\u0020spaces\\u0020" in shown
    assert "empty" in shown
    assert "می‌خواهم" in shown  # a joiner that the word needs is no trick
    raw = page.run("return document.getElementById('list').textContent")
    assert not set(raw) & set("\x1b\u202e\u2066\u2069\u2028")


def shown_keys(page):
    return page.run("return [...document.querySelectorAll('#list tr')].map(r => [...r.cells].map(c => c.textContent))")


def test_keys_of_several_columns_are_a_table(browser, pages):
    page = Page(browser, pages / "keys.html")
    heads = page.run("return [...document.querySelectorAll('.keys th')].map(h => h.textContent)")
    assert tuple(heads) == COLUMNS
    assert shown_keys(page)[0] == ["AU", "ios", "query 0"]
    assert ["AU", "tab\\u0009let", "query 3"] in shown_keys(page)  # a tab inside a value is a value's
    assert not page.run("return window.hacked")


def test_keys_are_found_by_any_column_or_by_one(browser, pages):
    page = Page(browser, pages / "keys.html")
    search, country, device = (page.find(s) for s in ("#search", "[data-column='0']", "[data-column='1']"))
    search.send_keys("IOS")
    assert {key[1] for key in shown_keys(page)} == {"ios"}
    assert page.find("#count").text == "160 of 320 items"
    search.clear()
    search.send_keys("e")
    assert page.find("#count").text == "320 of 320 items"
    country.send_keys("E")
    assert {key[0] for key in shown_keys(page)} == {"DE"}
    assert page.find("#count").text == "160 of 320 items"
    device.send_keys("let")
    assert {tuple(key[:2]) for key in shown_keys(page)} == {("DE", "tab\\u0009let")}
    assert page.find("#count").text == "80 of 320 items"
    country.clear()
    country.send_keys("query 7")
    assert shown_keys(page) == []


def click_head(page, column):
    page.find(f".keys th:nth-child({column + 1}) button").click()
    heads = page.run("return [...document.querySelectorAll('.keys th[aria-sort]')].map(h => h.ariaSort)")
    return [(at, way) for at, way in enumerate(heads) if way != "none"]


def test_keys_are_sorted_by_the_head_of_each_column(browser, pages):
    page = Page(browser, pages / "keys.html")
    assert click_head(page, 2) == [(2, "ascending")]
    assert [key[2] for key in shown_keys(page)[:5]] == ["query 0"] * 4 + ["query 1"]
    assert click_head(page, 2) == [(2, "descending")]
    assert [key[2] for key in shown_keys(page)[:5]] == ["query 79"] * 4 + ["query 78"]
    assert click_head(page, 0) == [(0, "ascending")]
    page.set("#sort", "z-a", "change")
    assert shown_keys(page)[0][0] == "DE"
    assert page.run("return document.querySelectorAll('[aria-sort=none]').length") == len(COLUMNS)


def test_counts_are_sorted_by_any_column(browser, pages):
    page = Page(browser, pages / "counted.html")
    assert page.run("return document.getElementById('sort').value") == "down 1"
    rows = shown_keys(page)
    assert rows[0][:4] == [WORDS[-1], "9,983", "6,655", "13,310"]
    people = [int(row[1].replace(",", "")) for row in rows]
    assert people == sorted(people, reverse=True)
    assert click_head(page, 1) == [(1, "ascending")]
    assert [row[1] for row in shown_keys(page)[:3]] == ["3", "3", "3"]
    assert click_head(page, 3) == [(3, "descending")]
    assert shown_keys(page)[0][3] == "13,310"
    assert page.run("return document.getElementById('sort').selectedOptions[0].text") == "high, falling"
    assert click_head(page, 0) == [(0, "ascending")]
    assert [row[0] for row in shown_keys(page)[:2]] == ["apple0", "apple1"]
    page.find(".keys th:nth-child(2) button").send_keys("\ue007")  # the keyboard sorts too
    assert shown_keys(page)[0][1] == "9,983"
    page.find("#search").send_keys("apple24")
    assert {row[0] for row in shown_keys(page)} == {f"apple{at}" for at in [24, *range(240, 250)]}


BARS = """
return [...document.querySelectorAll('#list tr')].slice(0, arguments[0]).map((row) =>
  ['bar', 'interval'].map((name) => {
    const box = row.querySelector('.' + name).getBBox();
    return [box.x, box.x + box.width];
  }))
"""


def test_bars_reach_to_the_estimate_and_lines_from_low_to_high(browser, pages):
    page = Page(browser, pages / "counted.html")
    most = 13_310
    numbers = [[int(text.replace(",", "")) for text in row[1:4]] for row in shown_keys(page)]
    for scale, place in (("powers", lambda one: math.log10(one) / math.log10(most)), ("even", lambda one: one / most)):
        page.set("#scale", scale, "change")
        for (bar, line), (people, low, high) in zip(page.run(BARS, 200), numbers, strict=True):
            assert bar == pytest.approx([0.0, 1000 * place(people)], abs=0.2)
            assert line == pytest.approx([1000 * place(low), 1000 * place(high)], abs=0.2)
    labels = page.run("return [...document.querySelectorAll('.bars span')].map(s => [s.textContent, s.style.left])")
    assert [text for text, _ in labels] == ["0", "5,000", "10 k"]
    assert float(labels[1][1].removesuffix("%")) == pytest.approx(100 * 5_000 / most, abs=0.01)


def test_hostile_items_with_counts_are_inert(browser, pages):
    page = Page(browser, pages / "counted-hostile.html")
    assert len(shown_keys(page)) == len(HOSTILE)
    assert page.run("return window.hacked") is None
    assert page.run("return document.querySelector('#list img, #list b, #list script, #injected')") is None


def test_the_band_shows_in_the_values_under_the_pointer(browser, pages):
    page = Page(browser, pages / "counted.html")
    page.hover("#part-1 .drawing.wide", 0.99)
    heading, name, value = page.tip().split("\n")
    assert (heading, name) == ("1,000 rank", "people")
    assert re.fullmatch(r"[\d.,]+ \([\d.,]+ to [\d.,]+\)", value)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize("name", ["keys", "counted-keys"])
def test_a_table_of_keys_does_not_widen_the_page(browser, pages, name, size):
    page = Page(browser, pages / f"{name}.html", size)
    assert page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_test_release_says_so_in_sight(browser, pages):
    page = Page(browser, pages / "hostile.html")
    warning = page.find(".warning")
    assert warning.is_displayed()
    assert warning.text.startswith("NOT PRIVATE")
    assert warning.location["y"] < 400


def test_hovering_a_line_shows_the_values_of_the_table(browser, pages):
    page = Page(browser, pages / "plan.html")
    figure = "#part-3 figure:not(.other)"
    page.hover(f"{figure} .drawing.wide", 0.95)
    heading, *values = page.tip().split("\n")
    holders = heading.split(" ")[0]
    rows = page.run(
        "return [...document.querySelectorAll(arguments[0])].map(r => [...r.cells].map(c => c.textContent))",
        f"{figure} tbody tr",
    )
    (row,) = [row for row in rows if row[0] == holders]
    assert heading == f"{holders} people who have the item"
    assert values == ["ε = 1", row[1], "ε = 2", row[2]]
    dots = page.run(
        "return [...document.querySelectorAll('.dot')].map(d => d.getBoundingClientRect()).map(b => b.x + b.width / 2)"
    )
    assert len(dots) == 2
    assert abs(dots[0] - dots[1]) < 0.5
    page.hover("h1", 0.5)
    assert page.tip() == ""
    assert page.run("return document.querySelectorAll('.dot').length") == 0


def test_hover_values_follow_the_pointer(browser, pages):
    """The place under the pointer is the nearest of the axis: read back from the tick labels' own places."""
    page = Page(browser, pages / "plan.html")
    figure = "#part-4 figure:not(.other) .drawing.wide"
    labels = page.run(
        "return [...document.querySelectorAll(arguments[0])].filter(t => t.textContent)"
        ".map(t => { const b = t.getBoundingClientRect(); return [t.textContent, b.x + b.width / 2] })",
        f"{figure} .role-axis-label text:not([text-anchor=end])",
    )
    box = page.run(
        "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return [b.x, b.width]", figure
    )
    assert len(labels) >= 4
    for label, place in labels:
        page.hover(figure, (place - box[0]) / box[1])
        assert float(page.tip().split(" ")[0].replace(",", "")) == pytest.approx(float(label.replace(",", "")), rel=0.2)


def test_hovering_bars_shows_values_as_text(browser, pages):
    page = Page(browser, pages / "lab.html")
    page.hover(".drawing.wide .bar:nth-of-type(1)", 0.5)
    assert page.tip().split("\n") == ["policy-gaussian", "ε = 3", "16,884"]
    page.hover(".drawing.wide", 0.5, 0.62)
    assert page.tip().split("\n") == ["funnel <b>", "ε = 3", "21,303", "ε = 1", "10,221"]


def test_values_are_there_for_the_keyboard_and_for_fingers(browser, pages):
    page = Page(browser, pages / "lab.html")
    page.run("document.querySelector('.drawing.wide').focus()")
    page.find(".drawing.wide").send_keys("\ue015")  # arrow down
    assert page.tip().startswith("policy-gaussian")
    page = Page(browser, pages / "plan.html", PHONE)
    place = page.hover("#part-3 figure:not(.other) .drawing.narrow", 0.9)
    page.hover("h1", 0.5)
    assert page.tip() == ""
    page.hover("#part-3 figure:not(.other) .drawing.narrow", 0.1)
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [place]})
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert "ε = 2" in page.tip()


def test_one_chart_at_a_time_is_chosen(browser, pages):
    page = Page(browser, pages / "plan.html")
    visible = "return [...document.querySelectorAll('#part-4 figure')].map(f => f.offsetHeight > 0)"
    assert page.run(visible) == [True, False, False]
    page.find("#part-4 [role=tab]:nth-child(3)").click()
    assert page.run(visible) == [False, False, True]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert page.run(visible) == [True, True, True]


@pytest.mark.parametrize("name", ["release", "hostile", "counted", "counted-hostile", "plan", "lab"])
def test_a_phone_needs_no_sideways_scrolling(browser, pages, name):
    page = Page(browser, pages / f"{name}.html", PHONE)
    page.run("for (const e of document.querySelectorAll('details')) e.open = true")
    assert page.run("return document.documentElement.scrollWidth") <= PHONE[0]
    sizes = page.run(
        "return [...document.querySelectorAll('.drawing')].map(d => d.getBoundingClientRect().width > 0 ? "
        "[d.classList.contains('narrow'), d.getScreenCTM().a * 12] : null).filter(Boolean)"
    )
    for narrow, letters in sizes:
        assert narrow
        assert letters > 10.0


@pytest.mark.parametrize("name", ["release", "counted", "plan", "lab"])
def test_dark_mode_is_dark_and_readable(browser, pages, name):
    light, dark = {}, {}
    for colours, is_dark in ((light, False), (dark, True)):
        page = Page(browser, pages / f"{name}.html", dark=is_dark)
        for key, selector, style in [
            ("paper", "body", "backgroundColor"),
            ("ink", "body", "color"),
            ("axis", ".drawing.wide text", "fill"),
            ("mark", ".drawing.wide .s0:not(.band)", "stroke" if name != "lab" else "fill"),
        ]:
            code = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
            found = page.run(code, selector, style)
            colours[key] = [int(part) for part in found.removeprefix("rgb(").removesuffix(")").split(",")]
    assert luminance(light["paper"]) > 0.9
    assert luminance(dark["paper"]) < 0.02
    for colours in (light, dark):
        for key, least in (("ink", 7.0), ("axis", 4.5), ("mark", 3.0)):
            assert contrast(colours[key], colours["paper"]) > least, key


def luminance(colour):
    """Relative luminance as the Web Content Accessibility Guidelines define it."""
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("name", "shown"), [("release", Page.shown), ("counted", shown_keys)])
def test_print_folds_the_list_unless_all_of_it_is_asked_for(browser, pages, name, shown):
    page = Page(browser, pages / f"{name}.html", dark=True)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert len(shown(page)) == 120
    assert page.find("#unprinted").text.startswith("… and 880 more items")
    lefts = page.run("return [...document.querySelectorAll('#list > *')].map(e => e.getBoundingClientRect().left)")
    assert len({round(left) for left in lefts}) >= 3, "the list is in columns"
    assert not page.find(".tools").is_displayed()
    assert page.find(".signing").is_displayed()
    assert not page.find("#inner").is_displayed()
    page.run("window.dispatchEvent(new Event('afterprint')); document.getElementById('whole').checked = true")
    assert len(shown(page)) == 200
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert len(shown(page)) == len(WORDS)
    assert page.find("#unprinted").text == ""
    page.run("document.querySelector('.fold').open = true")
    assert page.find("#inner").is_displayed()


def test_print_keeps_keys_in_a_table(browser, pages):
    page = Page(browser, pages / "counted-keys.html")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert len(shown_keys(page)) == 40
    tops = page.run("return [...document.querySelectorAll('#list tr')].map(e => e.getBoundingClientRect().top)")
    assert tops == sorted(set(tops))


PRINTED = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": False, "pageRanges": "1"}
FIRST_PAGE = ("#first-1", "#first-2", "#first-3", ".signing")


@pytest.mark.parametrize("name", ["told", "keys", "counted"])
def test_the_guarantee_is_on_page_1_of_the_print(browser, pages, name):
    """Laid out for A4 with the browser's margins, all that one signs lies within the first page's height."""
    page = Page(browser, pages / f"{name}.html")
    assert browser.execute_cdp_cmd("Page.printToPDF", PRINTED)["data"]
    inch, margins = 96, 2 * 0.4
    wide, high = round((8.27 - margins) * inch), (11.69 - margins) * inch
    metrics = {"width": wide, "height": round(high), "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    for selector in FIRST_PAGE:
        assert page.run("return document.querySelector(arguments[0]).getBoundingClientRect().bottom", selector) < high
    assert page.run("return getComputedStyle(document.getElementById('items')).breakBefore") == "page"


def test_the_bar_shows_the_parts_that_it_names(browser, pages):
    page = Page(browser, pages / "told.html")
    widths = page.run(
        "return [...document.querySelectorAll('#first-3 rect')].map(r => r.getBoundingClientRect().width)"
    )
    whole = page.run("return document.querySelector('#first-3 svg').getBoundingClientRect().width")
    assert [width / whole for width in widths] == pytest.approx([0.25, 0.1, 0.65], abs=0.002)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [(1280, 900), PHONE])
@pytest.mark.parametrize("name", ["told", "keys", "counted", "ledger", "plan", "lab"])
def test_nothing_collides_and_nothing_is_cut(browser, pages, name, size, dark):
    """Labels of one axis do not touch; no text of a page ends outside of the screen."""
    page = Page(browser, pages / f"{name}.html", size, dark=dark)
    assert page.run("return document.documentElement.scrollWidth") <= size[0]
    axes = page.run(
        "return [...document.querySelectorAll('.drawing')].filter(d => d.getBoundingClientRect().width)"
        ".flatMap(d => [...d.querySelectorAll('.role-axis-label')]).map(g => [...g.querySelectorAll('text')]"
        ".filter(t => t.textContent).map(t => t.getBoundingClientRect()).map(b => [b.x, b.y, b.right, b.bottom]))"
    )
    assert axes or name == "ledger"
    for boxes in axes:
        for one, other in itertools.pairwise(boxes):
            assert one[2] < other[0] or other[2] < one[0] or one[3] <= other[1] + 1 or other[3] <= one[1] + 1
    tiles = page.run("return [...document.querySelectorAll('.facts div')].map(d => d.getBoundingClientRect().right)")
    if size == PHONE:
        assert len({round(right) for right in tiles}) <= 2
    heights = page.run(
        "return [...document.querySelectorAll('.tools input[type=search], .tools select')].map(e => e.offsetHeight)"
    )
    assert len(set(heights)) <= 1


@pytest.mark.parametrize("width", [1280, 1200, 800, 700, 390])
@pytest.mark.parametrize("count", [4, 5, 6, 7])
def test_no_tile_is_alone_in_a_row(browser, pages, width, count):
    """The numbers at the top fill their rows, however many there are; on a phone, the last of an odd number does."""
    page = Page(browser, pages / "counted.html", PHONE if width == PHONE[0] else (width, 900))
    boxes = page.run(
        "const facts = document.querySelector('.facts'), tiles = facts.children;"
        "while (tiles.length > arguments[0]) tiles[1].remove();"
        "while (tiles.length < arguments[0]) facts.prepend(tiles[1].cloneNode(true));"
        "return [...tiles].map(e => e.getBoundingClientRect()).map(b => [b.top, b.left, b.right])",
        count,
    )
    rows = [list(row) for _, row in itertools.groupby(boxes, key=lambda box: round(box[0]))]
    assert len({round(row[-1][2]) for row in rows} | {round(max(right for *_, right in boxes))}) == 1
    assert len({round(row[0][1]) for row in rows}) == 1
    if width != PHONE[0]:
        assert len(rows) <= 2
        assert len(rows[-1]) >= 3
    assert page.run("return document.documentElement.scrollWidth") <= width


def test_without_javascript_the_facts_are_there(browser, pages):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = Page(browser, pages / "release.html")
        assert "1,000 items released" in page.find("h1").text
        assert "needs JavaScript" in page.find("#items").text
        assert not page.find(".tools").is_displayed()
        assert page.find(".drawing.wide").is_displayed()
        page = Page(browser, pages / "counted.html")
        rows = page.browser.find_elements("css selector", "#list tr")
        assert len(rows) == FIRST_ROWS
        assert rows[0].text.split() == [*WORDS[-1].split(), "9,983", "6,655", "13,310"]
        assert "The 500 most popular items are shown; all 1,000 are in this file" in page.find("#items").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
