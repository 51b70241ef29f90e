"""Released sets and plans are those that were recorded: nothing changes them unless it is meant to."""

import json

from recorder import RECORD, record


def test_releases_and_plans_are_those_recorded():
    before, now = json.loads(RECORD.read_text()), record()
    changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    assert not changed, f"{len(changed)} of {len(before)} lines changed, for example {changed[:5]}"


def test_the_record_is_worth_keeping():
    """Most releases are of some size, and no two keys give the same set."""
    lines = {name: value for name, value in json.loads(RECORD.read_text()).items() if "plan, " not in name}
    assert len(lines) > 250
    assert sum(int(value.split()[0]) >= 20 for value in lines.values()) > 0.75 * len(lines)
    for name, value in lines.items():
        if "key 1" in name and int(value.split()[0]) >= 200 and "shards" not in name:
            assert value != lines[name.replace("key 1", "key 2")]
