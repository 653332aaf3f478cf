"""Continuous actions: the page trains in slices, stops, goes on, starts anew with another range, and says what came out."""

import pytest

from tests.pages.conftest import open_page, texts

SHORT = {"cart_episodes": "20"}


@pytest.fixture(autouse=True)
def short_trainings(monkeypatch):
    """Sixty steps per learner: enough to be seen half done."""
    from offrl_core.continuous import learning

    defaults = learning.PointConfig.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "n_steps", 60)
    from offrl_core.continuous.cql_continuous import CqlContinuousConfig
    from offrl_core.continuous.td3_bc import Td3BcConfig

    for config in (CqlContinuousConfig, Td3BcConfig):
        monkeypatch.setitem(config.__init__.__kwdefaults__, "n_steps", 60)


def progress_of(app) -> str:
    return next(element for element in app.main if element.type == "progress").text
