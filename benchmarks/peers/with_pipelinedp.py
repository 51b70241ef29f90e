"""Items by PipelineDP: python with_pipelinedp.py SOURCE OUT EPSILON DELTA LIMIT WAY, with counts if WAY is counts."""

import sys

import pipeline_dp as dp
import pyarrow as pa
import pyarrow.parquet as pq

source, out, way = sys.argv[1], sys.argv[2], sys.argv[6]
epsilon, delta, limit = float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
table = pq.read_table(source)
rows = list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))
accountant = dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=delta)
engine = dp.DPEngine(accountant, dp.LocalBackend())
extractors = dp.DataExtractors(
    privacy_id_extractor=lambda row: row[0],
    partition_extractor=lambda row: row[1],
    value_extractor=lambda _: 0,
)
gaussian = dp.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING
if way == "counts":
    params = dp.AggregateParams(
        metrics=[dp.Metrics.PRIVACY_ID_COUNT],
        noise_kind=dp.NoiseKind.GAUSSIAN,
        max_partitions_contributed=limit,
        max_contributions_per_partition=1,
        partition_selection_strategy=gaussian,
        post_aggregation_thresholding=True,
    )
    found = engine.aggregate(rows, params, extractors)
elif way == "gaussian":
    params = dp.SelectPartitionsParams(max_partitions_contributed=limit, partition_selection_strategy=gaussian)
    found = engine.select_partitions(rows, params, extractors)
else:
    params = dp.SelectPartitionsParams(max_partitions_contributed=limit)  # truncated geometric
    found = engine.select_partitions(rows, params, extractors)
accountant.compute_budgets()
if way == "counts":
    items, people = zip(*((item, numbers.privacy_id_count) for item, numbers in found), strict=True)
    pq.write_table(pa.table({"item": items, "people": people}), out)
else:
    pq.write_table(pa.table({"item": list(found)}), out)
