"""The section of the Train page for a learner that is asked for a return: its dial, and what it gets for what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.asked_return import LENGTH_FACTOR, AskedReturns
from offrl_core.evaluation.rollout import Rollout
from offrl_core.figures.asked_return import make_asked_returns
from offrl_core.interfaces import TrainedModel
from offrl_core.sequence_policy import SequencePolicy
from offrl_core.training import run_id
from offrl_core.wording import counted
from offrl_core.worlds import WORLDS

from . import layout, state, work

BEYOND = 0.25  # of the range of the log's returns, on each side of the dial
SHORT_EPISODES = 30  # steps; up to here all is sampled within a second or two, unasked
N_SHORT, N_LONG = 500, 100  # sampled episodes


def result_row(now: work.Current, algorithm: str, model: TrainedModel) -> dict[str, object]:
    """Its line in the table of results: sampled success with an interval, as it has no exact one."""
    spec, n_done = orl.ALGORITHMS[algorithm], model.history[-1].step if model.history else 0
    row: dict[str, object] = {
        "learner": spec.short,
        "unsupported choices": "no table of states",
        "done after": counted(n_done, spec.unit),
    }
    if now.world:
        world, here = WORLDS[now.world], work.deployment(now.world)
        sampled = {name: sampled_in(now.dataset, model.policy, name) for name in world.deployments}
        for name, rollout in sampled.items():
            row[layout.success_column(world, name)] = _share_in_short(rollout)
        row["exact return"] = "not sampled" if sampled[here] is None else f"≈ {sampled[here].mean_return:+z.4f}"
        row["meets unseen states"] = "not counted"
    else:
        row["exact success"] = "unknown"
    row["estimate from the log (WIS)"] = "refused"
    row["run"] = run_id(now.dataset, algorithm, model.config, model.seed)
    return row


def _share_in_short(rollout: Rollout | None) -> str:
    if rollout is None:
        return "not sampled"
    low, high = rollout.success_interval()
    return f"≈ {rollout.success_rate:.0%} [{low:.0%}, {high:.0%}]"


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
            f"The log's episodes returned between {low:+z.3f} and {high:+z.3f} (discounted). What the policy gets for what it is "
            "asked takes a world to try it in, and behind an imported log there is none."
        )
        return
    asked, here = low + _render_dial() * (high - low), work.deployment(now.world)
    wanted = policy.horizon > SHORT_EPISODES and st.button(
        "Let it act",
        icon=":material/replay:",
        key=f"w:act:{algorithm}",
        help="Its episodes are long, so sampling them takes a while. Any click stops it.",
    )
    rollout = sampled_in(now.dataset, policy.asking(asked), here, wanted)
    if rollout is not None:
        _render_answer(now, asked, policy, rollout)
    curve = _curve(now.dataset, policy, here, wanted)
    if curve is not None:
        _render_curve(algorithm, curve, asked)


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
        f"Asked for **{asked:+z.3f}**, it gets **{rollout.mean_return:+z.3f}** [{low:+z.3f}, {high:+z.3f}] on average and solves "
        f"**{rollout.success_rate:.1%}** [{share_low:.1%}, {share_high:.1%}], where {spec.subject} "
        f"{spec.deployments[work.deployment(now.world)].title}. *Estimated: {len(rollout.returns):,} sampled episodes, 95 % "
        "intervals (bootstrap; Wilson), here and where the table says ≈.*"
    )
    worst, best = policy.return_range
    if not worst - 1e-9 <= asked <= best + 1e-9:
        st.caption(
            f":material/warning: No episode of the log returned {'more than' if asked > best else 'less than'} "
            f"{best if asked > best else worst:+z.3f}, so this is a guess."
        )


def _render_curve(algorithm: str, curve: AskedReturns, asked: float) -> None:
    figure = layout.drawn(make_asked_returns, curve, asked)
    pairs = ", ".join(f"{a:.2f} gives {b:.2f}" for a, b in zip(curve.asked[::3], curve.achieved[::3], strict=True))
    layout.render_figure(figure, key=f"asked:{algorithm}", alt=f"Return achieved by return asked for: {pairs}")
    cut = f" {curve.n_unfinished:,} episodes went on for too long and were cut." if curve.n_unfinished else ""
    st.caption(
        f"{curve.n_episodes:,} sampled episodes per point; band: 95 % interval of the mean, by the bootstrap. Hollow: beyond "
        f"what any episode of the log got.{cut}"
    )


# -- sampled once ------------------------------------------------------------------------------------------------


def sampled_in(dataset: Dataset, policy: SequencePolicy, deployment: str, wanted: bool = False) -> Rollout | None:
    """:func:`offrl_core.roll_out` in the log's world; None where that takes long and nobody has asked for it yet."""

    def sample() -> Rollout:
        with st.spinner("The policy is acting…"):
            return orl.roll_out(
                policy,
                dataset.log.source.world,
                deployment,
                n_episodes=_n_episodes(policy),
                discount=dataset.discount,
                max_steps=LENGTH_FACTOR * policy.horizon,
            )

    return _once(dataset, policy, ("rollout", deployment), wanted, sample)


def _curve(dataset: Dataset, policy: SequencePolicy, deployment: str, wanted: bool) -> AskedReturns | None:
    """:func:`offrl_core.asked_returns` with a bar; None as above."""

    def ask() -> AskedReturns:
        bar = st.progress(0.0, text="asking for one return after the other")
        asking = orl.asked_returns(
            policy, dataset.log.source.world, deployment, n_episodes=_n_episodes(policy) // 2, discount=dataset.discount
        )
        while True:
            try:
                progress = next(asking)
            except StopIteration as finished:
                bar.empty()
                return finished.value
            bar.progress(progress.step / progress.total, text=f"return {progress.step} of {progress.total}")

    return _once(dataset, policy, ("curve", deployment), wanted, ask)


def _n_episodes(policy: SequencePolicy) -> int:
    return N_SHORT if policy.horizon <= SHORT_EPISODES else N_LONG


def _once(
    dataset: Dataset, policy: SequencePolicy, key: tuple[str, str], wanted: bool, make: Callable[[], Any]
) -> Any | None:
    """What was sampled in this session; else sampled now, if it is quick or wanted."""
    done = st.session_state.setdefault("w:sampled", {})
    key = (dataset.discount, policy.digest(), *key)
    if key not in done and (wanted or policy.horizon <= SHORT_EPISODES):
        done[key] = make()
    return done.get(key)
