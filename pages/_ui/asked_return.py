"""The section of the Train page for a learner that is asked for a return: its dial, and what it gets for what it is asked."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.asked_return import AskedReturns
from offrl_core.evaluation.rollout import Rollout
from offrl_core.figures.asked_return import make_asked_returns
from offrl_core.interfaces import TrainedModel
from offrl_core.sequence_policy import SequencePolicy
from offrl_core.training import run_id
from offrl_core.worlds import WORLDS

from . import layout, state, work

N_ROLLOUTS = 500
BEYOND = 0.25  # of the range of the log's returns, on each side of the dial
SHORT_EPISODES = 20  # steps; up to here the curve takes about a second and is drawn unasked


def result_row(now: work.Current, algorithm: str, model: TrainedModel) -> dict[str, object]:
    """Its line in the table of results: sampled success with an interval, as it has no exact one."""
    spec, last = orl.ALGORITHMS[algorithm], model.history[-1]
    row: dict[str, object] = {
        "learner": spec.short,
        "unsupported choices": "no table of states",
        "done after": f"{last.step:,} {spec.unit}s",
    }
    if now.world:
        world = WORLDS[now.world]
        sampled = {name: rolled_out(model.policy, now.world, name, now.dataset.discount) for name in world.deployments}
        for name, rollout in sampled.items():
            column = f"success, {world.subject} {world.deployments[name].title}"
            share_low, share_high = rollout.success_interval()
            row[column] = f"≈ {rollout.success_rate:.0%} [{share_low:.0%}, {share_high:.0%}]"
        row["exact return"] = f"≈ {sampled[work.deployment(now.world)].mean_return:+.4f}"
        row["meets unseen states"] = "not counted"
    else:
        row["exact success"] = "unknown"
    row["estimate from the log (WIS)"] = "refused"
    row["run"] = run_id(now.dataset, algorithm, model.config, model.seed)
    return row


def render_asked_returns(now: work.Current, models: Mapping[str, TrainedModel | None]) -> None:
    """The section, for each trained model that can be asked."""
    for algorithm, model in models.items():
        if model is not None and isinstance(model.policy, SequencePolicy):
            _render_one(now, algorithm, model, model.policy)


def _render_one(now: work.Current, algorithm: str, model: TrainedModel, policy: SequencePolicy) -> None:
    st.markdown(f"##### {orl.ALGORITHMS[algorithm].short}: ask for a return", help=layout.tip("asked_return"))
    if model.problem:
        layout.warning(model.problem)
    low, high = policy.return_range
    if not now.world:
        st.caption(
            f"The log's episodes returned between {low:+.3f} and {high:+.3f} (discounted). What the policy gets for what it is "
            "asked takes a world to try it in, and behind an imported log there is none."
        )
        return
    share = _render_dial()
    asked = low + share * (high - low)
    here = work.deployment(now.world)
    rollout = rolled_out(policy.asking(asked), now.world, here, now.dataset.discount)
    _render_answer(now, asked, policy, rollout)
    curve = _curve(now.dataset, policy, now.world, here)
    if curve is not None:
        figure = layout.drawn(make_asked_returns, curve, asked)
        layout.render_figure(figure, key=f"asked:{algorithm}", alt=_in_words(curve))
        cut = f" {curve.n_unfinished:,} episodes went on for too long and were cut." if curve.n_unfinished else ""
        st.caption(
            f"{curve.n_episodes:,} sampled episodes per point; band: 95 % interval of the mean, by the bootstrap. Hollow: beyond "
            f"what any episode of the log got.{cut}"
        )


def _render_dial() -> float:
    """Where between the log's worst and best return the dial stands."""
    st.slider(
        "Return asked for (0: the log's worst, 1: its best)",
        -BEYOND,
        1 + BEYOND,
        step=0.05,
        **state.bound("asked"),
        width=420,
        help="The policy isn't trained again: what it is asked for is part of what it looks at.",
    )
    return state.get("asked")


def _render_answer(now: work.Current, asked: float, policy: SequencePolicy, rollout: Rollout) -> None:
    """What it gets, in one sentence; and a word of care beyond the log."""
    spec = WORLDS[now.world]
    low, high = rollout.return_interval()
    share_low, share_high = rollout.success_interval()
    st.markdown(
        f"Asked for **{asked:+.3f}**, it gets **{rollout.mean_return:+.3f}** [{low:+.3f}, {high:+.3f}] on average and solves "
        f"**{rollout.success_rate:.1%}** [{share_low:.1%}, {share_high:.1%}], where {spec.subject} "
        f"{spec.deployments[work.deployment(now.world)].title}. *Estimated: {N_ROLLOUTS} sampled episodes, 95 % intervals "
        "(bootstrap; Wilson), here and where the table says ≈.*"
    )
    worst, best = policy.return_range
    if not worst - 1e-9 <= asked <= best + 1e-9:
        st.caption(
            f":material/warning: No episode of the log returned {'more than' if asked > best else 'less than'} "
            f"{best if asked > best else worst:+.3f}, so this is a guess."
        )


def rolled_out(policy: SequencePolicy, world: str, deployment: str, discount: float) -> Rollout:
    """:func:`offrl_core.roll_out`, once."""
    return _rolled_out((policy.digest(), world, deployment, discount), policy)


@st.cache_resource(show_spinner="The policy is acting…", max_entries=256, ttl="2h")
def _rolled_out(key: tuple[str, str, str, float], _policy: SequencePolicy) -> Rollout:
    _, world, deployment, discount = key
    return orl.roll_out(_policy, world, deployment, n_episodes=N_ROLLOUTS, discount=discount)


def _curve(dataset: Dataset, policy: SequencePolicy, world: str, deployment: str) -> AskedReturns | None:
    """The curve, once it is there: worked out at once for short episodes, on a click for long ones, ended by any click."""
    done = st.session_state.setdefault("w:asked_returns", {})
    key = (policy.digest(), deployment)
    if key in done:
        return done[key]
    if policy.horizon > SHORT_EPISODES and not st.button("Try the whole dial", icon=":material/replay:"):
        return None
    bar = st.progress(0.0, text="asking for one return after the other")
    asking = orl.asked_returns(policy, world, deployment, discount=dataset.discount)
    while True:
        try:
            progress = next(asking)
        except StopIteration as finished:
            done[key] = finished.value
            break
        bar.progress(progress.step / progress.total, text=f"return {progress.step} of {progress.total}")
    bar.empty()
    return done[key]


def _in_words(curve: AskedReturns) -> str:
    """The curve for those who can't see it."""
    pairs = ", ".join(f"{a:.2f} gives {b:.2f}" for a, b in zip(curve.asked[::3], curve.achieved[::3], strict=True))
    return f"Return achieved by return asked for: {pairs}"
