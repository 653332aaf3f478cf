"""Our networks and d3rlpy's on the same arrays; skipped unless ``OFFRL_D3RLPY`` names a Python that has d3rlpy."""

from __future__ import annotations

import pytest

import offrl_core as orl
from tests.bench.networks import PEERS, VARIABLE, agreement, peer_python

pytestmark = pytest.mark.skipif(not peer_python(), reason=f"{VARIABLE} names no Python with d3rlpy")


@pytest.mark.parametrize("name", PEERS)
def test_both_pick_the_same_actions_where_the_log_speaks(name: str) -> None:
    """Ten seeds on the bundled calculator log; what is left apart are states that the log hardly visits."""
    shares = agreement(orl.frame(orl.bundled_log("calculator")), name, n_seeds=10, n_steps=1000)
    assert shares.mean() > 0.95
