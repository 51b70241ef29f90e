"""Fit the shape of the generated data to the printed numbers, and print it beside what it is expected to give.

python tools/fit_shape.py
"""

from __future__ import annotations

from dpunion_lab.fitting import TAILS, expected, fit_shape, targets
from dpunion_lab.generators import SHAPES


def main() -> None:
    """Fit with every tail there is."""
    for tail in TAILS:
        shape = fit_shape(tail)
        same = "the one that is shipped" if shape == SHAPES[tail] else "NOT the one that is shipped"
        print(f"Tail of rare items as in {tail}: {shape}, {same}")
        here = expected(shape)
        for name, goal in targets(tail).items():
            print(f"  {name:20}{goal:>12,.6g}{here[name]:>12,.6g}{here[name] / goal - 1.0:>+9.1%}")


if __name__ == "__main__":
    main()
