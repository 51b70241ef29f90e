"""Apache Spark: the same release for data that is too large for one machine.

    rows ── by user ── bound ──┬── add shares ── sum by item ── decide ── items      (order-free algorithms)
                               ├── pieces by shard ── rounds ── decide ── names      (policies, several rounds, counts)
                               └── whole sets ── sum by place ── add noise           (counts)

engine     the verbs of an engine                     sessions   a session, Java, the workers' Python, numbers of
                                                                 partitions, and Spark's errors
sources    files and tables by name, opened           rounds     users together, the rounds, released items
           after the charge                           texts      the lengths of n-grams
files      text files, read in workers                counting   people counted
tasks      read, weigh and decide, in a worker        wire       contributions on their way

Everything runs in `mapInArrow`, with the kernels and the randomness of one machine; Spark sums and shuffles. Item
weights, scores, exact sums and names that are not released stay on the executors.
"""
