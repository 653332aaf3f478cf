"""The families of methods that a log can be ready for, and the three verdicts."""

from __future__ import annotations

from typing import Literal, NamedTuple

VerdictWord = Literal["ready", "ready with caveats", "blocked"]
READY: VerdictWord = "ready"
WITH_CAVEATS: VerdictWord = "ready with caveats"
BLOCKED: VerdictWord = "blocked"


class Family(NamedTuple):
    """A family of methods: short name, what it does in plain words, what it asks of a log."""

    short: str
    title: str
    does: str


FAMILIES: dict[str, Family] = {
    "bc": Family("BC", "Behavior cloning", "copies what the log does"),
    "fqi": Family("FQI / CQL", "Value learning (FQI, CQL)", "learns what actions are worth, and picks the best"),
    "decision_transformer": Family(
        "DT", "Decision Transformer", "learns whole episodes, and replays those with a high return"
    ),
    "is": Family("IS / WIS", "Importance sampling (IS, WIS)", "judges another policy by reweighting logged episodes"),
    "dr": Family("DR", "Doubly robust (DR)", "judges another policy by reweighting and by learned values"),
    "fqe": Family("FQE", "Fitted Q evaluation (FQE)", "judges another policy by learned values"),
}
ALIASES = {"cql": "fqi", "dt": "decision_transformer", "wis": "is"}

LEARN_FROM_REWARD = ("fqi", "decision_transformer", "is", "dr", "fqe")
BOOTSTRAP = ("fqi", "dr", "fqe")
WHOLE_EPISODES = ("decision_transformer", "is", "dr")
REWEIGHT = ("is", "dr")
EVERY = tuple(FAMILIES)
