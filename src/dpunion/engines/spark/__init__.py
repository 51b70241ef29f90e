"""Apache Spark: the same release where one machine is not enough.

    rows ── by user ── bound ──┬── add shares ── sum by item ── decide ── items      (order-free algorithms)
                               └── pieces by shard ── rounds ── decide ── names      (policies, several rounds)

frames     what is known without importing Spark      sessions   a session, and the Java it needs
engine     the rounds as DataFrames                   tasks      what runs in the workers: reading, sharing out
wire       contributions as they travel               rounds     what runs in the workers: a shard's part of a round
targets    how much of the need one shard fills       sources    files and tables by name, opened after the charge
files      text files, read in the workers

Everything runs in `mapInArrow`, by the kernels and the randomness of one machine; sums and shuffles are Spark's. Item
weights, scores and names that are not released stay on the executors.
"""
