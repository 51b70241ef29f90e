"""The recipes of docs/comparison.md: OpenDP, PipelineDP and Tumult take the released keys and sum by them.

Each library has an environment of its own, which `make test-all` makes; without one its test skips.
"""

import csv
import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from doc_examples import ROOT, blocks
from example_data import write_all

import dpunion
from running import PATIENCE

PAGE = "docs/comparison.md"
PEERS = Path(os.environ.get("DPUNION_PEERS", ROOT / ".venv-peers"))
# How each recipe begins, and how its sums become a dict from product to number.
RECIPES = {
    "opendp": ("import opendp", "dict(sums.select('product', 'amount').iter_rows())"),
    "pipelinedp": ("import csv", "sums"),
    "tumult": ("from pyspark", "{row['product']: row['amount'] for row in sums.collect()}"),
}
# How far the largest sum, 27,516, may be off: PipelineDP's noise has a standard deviation of some 770 (others a Laplace
# scale of 200), so this is more than six of them, and 1,000 for the orders that its bounds cut off.
MOST_OFF = 6_000


@pytest.fixture
def orders(tmp_path):
    write_all(tmp_path)
    with (tmp_path / "orders.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("peer", RECIPES)
def test_released_keys_and_the_rest_of_the_budget_give_sums(peer, orders, tmp_path):
    python = PEERS / peer / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{peer} is not installed: `make peers` does it")
    release = dpunion.release(tmp_path / "orders.csv", user="customer", item="product", epsilon=0.5, delta=5e-7)
    release.write(tmp_path / "keys.csv")
    start, as_dict = RECIPES[peer]
    (recipe,) = [one.text for one in blocks(PAGE, (ROOT / PAGE).read_text("utf-8")) if one.text.startswith(start)]
    code = f"{recipe}\nimport json\nopen('sums.json', 'w').write(json.dumps({as_dict}))\n"
    environment = os.environ | {"PYSPARK_PYTHON": str(python)}
    subprocess.run([python, "-c", code], cwd=tmp_path, check=True, timeout=PATIENCE, env=environment)
    sums = json.loads((tmp_path / "sums.json").read_text("utf-8"))
    assert set(sums) == set(release.items), "every released key has a sum, and no other"
    true = Counter()
    for order in orders:
        true[order["product"]] += int(order["amount"])
    product, amount = true.most_common(1)[0]
    assert abs(sums[product] - amount) < MOST_OFF
