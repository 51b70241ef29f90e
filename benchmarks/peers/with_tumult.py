"""Items by Tumult Analytics: python with_tumult.py SOURCE OUT EPSILON DELTA LIMIT WAY, with counts if WAY is counts."""

import os
import sys

from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    ApproxDPBudget,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    QueryBuilder,
    Session,
)

source, out, way = sys.argv[1], sys.argv[2], sys.argv[6]
epsilon, delta, limit = float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
spark = SparkSession.builder.master("local[*]").getOrCreate()
budget = ApproxDPBudget(epsilon, delta)
session = Session.from_dataframe(budget, "pairs", spark.read.parquet(source), protected_change=AddRowsWithID("user"))
bounded = QueryBuilder("pairs").enforce(MaxGroupsPerID("item", limit)).enforce(MaxRowsPerGroupPerID("item", 1))
if way == "counts":
    keys = session.evaluate(bounded.get_groups(["item"]), ApproxDPBudget(epsilon / 2, delta))
    counted = bounded.groupby(KeySet.from_dataframe(keys)).count("people")
    session.evaluate(counted, session.remaining_privacy_budget).write.parquet(out)
else:
    session.evaluate(bounded.get_groups(["item"]), budget).write.parquet(out)
# What follows lets the benchmark see the memory and time of the JVM.
jvm = spark.sparkContext._gateway.proc  # noqa: SLF001
spark.stop()
jvm.stdin.close()
os._exit(jvm.wait() and 0)
