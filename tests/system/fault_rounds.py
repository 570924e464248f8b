"""How many rounds with faults are run, and from which seeds: told by the environment.

``PARITAS_FAULT_ROUNDS`` is the number of rounds, ``PARITAS_FAULT_SEED`` the first seed,
``PARITAS_FAULT_OUTAGE_S`` for how long the broker is away in the test of a long outage.
"""

import os

ROUNDS = int(os.environ.get("PARITAS_FAULT_ROUNDS", "7"))
SEED = int(os.environ.get("PARITAS_FAULT_SEED", "1"))
OUTAGE_S = float(os.environ.get("PARITAS_FAULT_OUTAGE_S", "5"))
ROUNDS_A_CAMPAIGN = 7  # each fault may happen to what another left behind


def campaigns(share=1.0):
    """Seed and rounds of each campaign of a test that has a share of the rounds."""
    rounds = max(1, round(share * ROUNDS))
    number = max(1, rounds // ROUNDS_A_CAMPAIGN)
    return [(SEED + i, rounds // number + (i < rounds % number)) for i in range(number)]
