"""Keys with counts by PipelineDP, in an environment of its own: benchmarks/counts_peer.py starts it.

    python peer.py PAIRS.npy EPSILON DELTA LIMIT WAY

PAIRS.npy holds int32[pairs, 2], the numbers of people and items; LIMIT is the most partitions that a person contributes
to. JSON is printed: the numbers of the released items, their counts, the seconds.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pipeline_dp as dp

STRATEGIES = dp.PartitionSelectionStrategy
# Keep the keys whose noisy count is high enough, with the whole budget; or select with half of it and count with half.
WAYS = {
    "threshold": {
        "partition_selection_strategy": STRATEGIES.GAUSSIAN_THRESHOLDING,
        "post_aggregation_thresholding": True,
    },
    "select": {"partition_selection_strategy": STRATEGIES.TRUNCATED_GEOMETRIC},
}


def main() -> None:
    """Release once."""
    pairs, way = np.load(sys.argv[1]).tolist(), WAYS[sys.argv[5]]
    epsilon, delta, limit = float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    began = time.perf_counter()
    accountant = dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=delta)
    engine = dp.DPEngine(accountant, dp.LocalBackend())
    params = dp.AggregateParams(
        metrics=[dp.Metrics.PRIVACY_ID_COUNT],
        noise_kind=dp.NoiseKind.GAUSSIAN,
        max_partitions_contributed=limit,
        max_contributions_per_partition=1,
        **way,
    )
    extractors = dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda _: 0,
    )
    found = engine.aggregate(pairs, params, extractors)
    accountant.compute_budgets()
    counts = {int(item): float(metrics.privacy_id_count) for item, metrics in found}
    seconds = time.perf_counter() - began
    print(json.dumps({"items": list(counts), "people": list(counts.values()), "seconds": seconds}))


if __name__ == "__main__":
    main()
