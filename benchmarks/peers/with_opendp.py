"""Items with counts by OpenDP: python with_opendp.py SOURCE OUT EPSILON DELTA LIMIT WAY, laplace or gaussian."""

import sys

import opendp.prelude as dp
import polars as pl

source, out, way = sys.argv[1], sys.argv[2], sys.argv[6]
epsilon, delta, limit = float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
dp.enable_features("contrib")
# OpenDP believes the bound below: keep at most this many random items of each person.
rows = pl.read_parquet(source).unique().filter(pl.int_range(pl.len()).shuffle().over("user") < limit)
bound = dp.polars.Bound(by=["item"], num_groups=limit, per_group=1)
if way == "laplace":
    loss = dp.loss_of(epsilon=epsilon, delta=delta)
else:
    # Gaussian noise is accounted in rho: find the largest for epsilon and half of delta; the threshold has the rest.
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    scale = dp.binary_search(
        lambda s: dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, s)).map(1.0).epsilon(delta / 2) <= epsilon,
        bounds=(0.01, 1000.0),
    )
    loss = dp.loss_of(rho=0.5 / scale**2, delta=delta / 2)
unit = dp.unit_of(contributions=[bound])
context = dp.Context.compositor(data=rows.lazy(), privacy_unit=unit, privacy_loss=loss, split_evenly_over=1)
found = context.query().group_by("item").agg(people=dp.len(signed=False)).release().collect()
found.write_parquet(out)
