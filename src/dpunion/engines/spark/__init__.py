"""Apache Spark: the same release where one machine is not enough.

    rows ── by user ── bound ──┬── add shares ── sum by item ── decide ── items      (order-free algorithms)
                               ├── pieces by shard ── rounds ── decide ── names      (policies, several rounds, counts)
                               └── whole sets ── sum by place ── add noise           (counts)

engine     the verbs of an engine                     sessions   a session, and the Java it needs
sources    files and tables by name, opened           files      text files, read in the workers
           after the charge                           frames     columns, users together, items out
rounds     the rounds as DataFrames                   texts      the lengths of n-grams as DataFrames
partitions a partition of whole users, in a worker    tasks      weigh and decide, in a worker
wire       contributions as they travel               targets    how much of the need one shard fills
counting   people counted as DataFrames               failures   what Spark raises, without values

Everything runs in `mapInArrow`, by the kernels and the randomness of one machine; sums and shuffles are Spark's. Item
weights, scores, exact sums and names that are not released stay on the executors.
"""
