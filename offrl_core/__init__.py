"""Offline RL Explorer, the core: logs, coverage, learners, truth and estimates. It never imports streamlit.

Everything a notebook needs hangs on this module, and importing it is cheap: names are loaded when they are first used.

    import offrl_core as orl

    log = orl.collect("calculator", behavior="logger", n_episodes=3000, seed=42)
    dataset = orl.frame(log, edits=[orl.DropAction("mul", where="task = 'mul'", how="episodes")])
    model = orl.train(dataset, "fqi", default_value=0.0)
    truth = orl.evaluate(model.policy, "calculator", deployment="works")
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "ALGORITHMS": "algorithms",
    "BEHAVIORS": "behavior",
    "Behavior": "behavior",
    "MixedBehavior": "behavior_policies",
    "TableBehavior": "behavior_policies",
    "behavior_truth": "evaluation.exact",
    "CapVisits": "coverage_edits",
    "DropAction": "coverage_edits",
    "DropWhere": "coverage_edits",
    "ESTIMATORS": "evaluation.ope",
    "Framing": "framing",
    "FRAMINGS": "framing",
    "FramingChoices": "framing_choices",
    "IMPORTERS": "importers",
    "JoinRewards": "rewards",
    "KeepFraction": "coverage_edits",
    "KeepRest": "coverage_edits",
    "MinReturn": "coverage_edits",
    "OffRLError": "errors",
    "OnlyValue": "coverage_edits",
    "RuleRewards": "rewards",
    "StepMapping": "importers.step_mapping",
    "WORLDS": "worlds",
    "assess": "readiness",
    "asked_returns": "evaluation.asked_return",
    "bundled_log": "log",
    "collect": "log",
    "compare_estimators": "evaluation.comparison",
    "ceiling": "evaluation.ceiling",
    "ceiling_curve": "evaluation.ceiling",
    "compounding_error": "evaluation.shift",
    "coverage_study": "evaluation.coverage_study",
    "distribution_shift": "evaluation.shift",
    "collect_gymnasium": "gymnasium_logs",
    "estimate": "evaluation.ope",
    "estimate_all": "evaluation.ope",
    "evaluate": "evaluation.exact",
    "exact_q_of": "evaluation.diagnostics",
    "find_job": "jobs",
    "forecast": "evaluation.forecast",
    "frame": "dataset",
    "judge": "evaluation.judgement",
    "has_run": "runs",
    "leaving_steps": "evaluation.ledger",
    "list_runs": "runs",
    "log_quality": "evaluation.log_quality",
    "load_run": "runs",
    "neural_q_values": "evaluation.ope.neural",
    "read_reward_file": "reward_files",
    "read_traces": "log",
    "return_distribution": "evaluation.exact",
    "roll_out": "evaluation.rollout",
    "split_edits": "coverage_edits",
    "save_run": "runs",
    "score_forecast": "evaluation.forecast",
    "start_training": "training",
    "submit": "jobs",
    "submit_seeds": "jobs",
    "train": "training",
    "value_ledger": "evaluation.ledger",
    "with_rewards": "rewards",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Load a public name from the module it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return ["__version__", *__all__]
