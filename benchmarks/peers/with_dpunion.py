"""Items by dpunion: python with_dpunion.py SOURCE OUT EPSILON DELTA LIMIT WAY, with counts if WAY is counts."""

import sys

import dpunion

source, out, way, limit = sys.argv[1], sys.argv[2], sys.argv[6], int(sys.argv[5])
epsilon, delta = float(sys.argv[3]), float(sys.argv[4])
if way == "counts":
    release = dpunion.release(source, user="user", item="item", epsilon=epsilon, delta=delta, counts=True)
elif way == "items":
    release = dpunion.release(source, user="user", item="item", epsilon=epsilon, delta=delta)
else:
    bounded = {"dp-sips": dpunion.DpSips, "policy-gaussian": dpunion.PolicyGaussian}[way](max_items_per_user=limit)
    release = dpunion.release(source, user="user", item="item", epsilon=epsilon, delta=delta, algorithm=bounded)
release.write(out)
