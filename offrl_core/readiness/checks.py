"""What stands between a log and a method: one small function per lack, each with its sentence and its remedy.

To add a check, write a function from :class:`Facts` to a :class:`Finding` or None and put it into ``CHECKS``. A field that
was missing and is filled in never makes a verdict worse, unless its values are bad news that the log hid before: a lack
weighs at least as much as the ordinary trouble it may hide. Versions that aren't named, for instance, count like
versions that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..evaluation.ope import MAX_SHARE_LEFT_OUT, MIN_EFFECTIVE_SAMPLE_SIZE
from ..wording import counted, plural
from .facts import Coverage, Facts
from .families import BOOTSTRAP, EVERY, LEARN_FROM_REWARD, REWEIGHT, WHOLE_EPISODES
from .losses import counts, in_proportion

FEW_EPISODES = 30  # a rule of thumb, and called so where it is used
MOST = 0.5
_MEND = "Look at the problems of the import (page Data), mend or export the files anew, and load them again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that a method would have to live with, or can't.

    Attributes:
        key: short stable name, readable in a list.
        sentence: what is the matter.
        fix: what to log or do about it, as an order; "" where nothing can be done.
        blocks: families that can't work on this log because of it.
        weakens: families that work, with this caveat.
        columns: of the trace schema, that are missing or bad.
        n, n_all, unit: how much of the log it concerns.
        certain: False where the trouble is possible only, because the log doesn't say.
    """

    key: str
    sentence: str
    fix: str = ""
    blocks: tuple[str, ...] = ()
    weakens: tuple[str, ...] = ()
    columns: tuple[str, ...] = field(default=())
    n: int
    n_all: int
    unit: str = "episodes"
    certain: bool = True


def find(facts: Facts) -> tuple[Finding, ...]:
    """Everything that stands in the way, in the order of ``CHECKS``."""
    found = (check(facts) for check in CHECKS)
    return tuple(finding for finding in found if finding is not None)


def _except(families: Sequence[str], taken: Sequence[str]) -> tuple[str, ...]:
    return tuple(family for family in families if family not in taken)


def _share(n: int, n_all: int, thing: str) -> str:
    """For example "all 24 episodes", "3 of 24 episodes"."""
    if n == n_all:
        return f"the one {thing}" if n_all == 1 else f"all {n_all:,} {thing}s"
    return f"{n:,} of {n_all:,} {thing}s"


def _silent(n: int, n_all: int, thing: str, verb: str, what: str) -> str:
    """For example "No step says ...", "3 of 24 steps don't say ..."; the verb is given as "say"."""
    return f"No {thing} {verb}s {what}" if n == n_all else f"{_share(n, n_all, thing)} don't {verb} {what}"


# -- the import ----------------------------------------------------------------------------------------------


def _lost_on_import(facts: Facts) -> Finding | None:
    """Records and files that are gone; few of them in a large log matter less than chance does."""
    losses = facts.losses
    if not counts(losses.share, facts.n_episodes):
        return None
    in_records = losses.n_lost > 0
    return Finding(
        key="lost on import",
        sentence=f"{losses.sentence}; the first: {losses.first.rstrip('.')}. "
        f"{in_proportion(losses.share, facts.n_episodes)}",
        fix=_MEND,
        weakens=EVERY,
        n=losses.n_lost if in_records else losses.n_unread + losses.n_damaged,
        n_all=losses.n_records if in_records else losses.n_files,
        unit=plural(losses.unit) if in_records else "files",
        certain=in_records,
    )


def _torn_on_import(facts: Facts) -> Finding | None:
    """Episodes with something missing inside: single decisions are as good as ever, sequences aren't."""
    n = facts.losses.n_torn
    if not counts(n / facts.n_episodes, facts.n_episodes):
        return None
    unrewarded = facts.losses.n_torn_unrewarded
    outcome = f" {unrewarded:,} of them have no known return." if unrewarded and facts.outcomes.n_known else ""
    return Finding(
        key="torn on import",
        sentence=f"Something inside of {_share(n, facts.n_episodes, 'episode')} was lost on import: what followed what isn't "
        f"known there, and sums of rewards may lack a step.{outcome} {in_proportion(n / facts.n_episodes, facts.n_episodes)}",
        fix=f"{_MEND} Or leave the torn episodes out: the page Data names them.",
        weakens=WHOLE_EPISODES,
        n=n,
        n_all=facts.n_episodes,
    )


# -- states and episodes -------------------------------------------------------------------------------------


def _unframeable(facts: Facts) -> Finding | None:
    if facts.coverage is not None:
        return None
    return Finding(
        key="no states",
        sentence=f"The log can't be turned into states and actions. {facts.framing_problem}",
        fix="Name an action on each step, or choose a framing that gives one.",
        blocks=EVERY,
        columns=("action",),
        n=facts.n_steps,
        n_all=facts.n_steps,
        unit="steps",
    )


def _torn(facts: Facts) -> Finding | None:
    if facts.sequences.whole:
        return None
    return Finding(
        key="torn episodes",
        sentence="A coverage edit took single steps out of episodes, so whole sequences are gone.",
        fix="Undo that edit, or drop whole episodes instead of steps.",
        blocks=WHOLE_EPISODES,
        columns=("episode_id", "t"),
        n=facts.n_episodes,
        n_all=facts.n_episodes,
    )


def _gaps(facts: Facts) -> Finding | None:
    n = facts.sequences.n_with_gaps - facts.losses.n_torn_with_gaps
    if not n or not facts.sequences.whole:
        return None
    return Finding(
        key="gaps",
        sentence=f"Step numbers jump in {_share(n, facts.n_episodes, 'episode')}: what followed there is unknown.",
        fix="Log every step, and number them without gaps.",
        weakens=LEARN_FROM_REWARD,
        columns=("t",),
        n=n,
        n_all=facts.n_episodes,
    )


def _few_episodes(facts: Facts) -> Finding | None:
    n = facts.outcomes.n_known or facts.n_episodes
    if n >= FEW_EPISODES:
        return None
    known = " with a known return" if n < facts.n_episodes else ""
    only = f"There is only one episode{known}" if n == 1 else f"There are only {n:,} episodes{known}"
    too_few = ("is",) if n < MIN_EFFECTIVE_SAMPLE_SIZE else ()
    concerned = LEARN_FROM_REWARD if known else EVERY
    if too_few:
        rule = f" Importance sampling needs {MIN_EFFECTIVE_SAMPLE_SIZE} at least."
    else:
        rule = f" As a rule of thumb, have {FEW_EPISODES} at least."
    return Finding(
        key="few episodes",
        sentence=f"{only}: whatever comes out is rough.{rule}",
        fix="Log more episodes.",
        blocks=too_few,
        weakens=_except(concerned, too_few),
        n=n,
        n_all=facts.n_episodes,
    )


def _unknown_endings(facts: Facts) -> Finding | None:
    n = facts.ends["unknown"]
    if not n:
        return None
    silent = _silent(
        n, facts.n_episodes, "episode", "say", "how it ended" if n == facts.n_episodes else "how they ended"
    )
    return Finding(
        key="unknown endings",
        sentence=f"{silent}. Here that counts as finished; if some were cut off, values and returns come out wrong.",
        fix="Log terminal (the task ended) and timeout (a limit cut it) apart on the last step, never a bare done.",
        weakens=LEARN_FROM_REWARD,
        columns=("terminal", "timeout", "end_reason"),
        n=n,
        n_all=facts.n_episodes,
    )


def _cut_short(facts: Facts) -> Finding | None:
    n = facts.ends["truncated"] + facts.ends["cut"]
    if not n:
        return None
    return Finding(
        key="cut episodes",
        sentence=f"{_share(n, facts.n_episodes, 'episode').capitalize()} were cut before the end: their returns are "
        "too short, and their last step teaches no value.",
        fix="Let episodes run to their end; where the limit belongs to the task, log terminal instead of timeout.",
        weakens=LEARN_FROM_REWARD,
        n=n,
        n_all=facts.n_episodes,
    )


# -- rewards -------------------------------------------------------------------------------------------------


def _no_rewards(facts: Facts) -> Finding | None:
    n_lacking = facts.n_episodes - facts.outcomes.n_rewarded
    if not n_lacking:
        return None
    none_at_all = facts.outcomes.n_rewarded == 0
    too_many = n_lacking > MAX_SHARE_LEFT_OUT * facts.n_episodes
    blocked = LEARN_FROM_REWARD if none_at_all else REWEIGHT if too_many else ()
    sentence = (
        "No episode has a reward, so good ones can't be told from bad ones."
        if none_at_all
        else f"{_share(n_lacking, facts.n_episodes, 'episode')} have no reward: unknown, not 0. They can only be copied"
        + ("; so many that the others may not be like them, and weighing episodes is refused." if too_many else ".")
    )
    return Finding(
        key="no rewards",
        sentence=sentence,
        fix="Log how each episode turned out (reward on the last step is enough), or add it on the page Rewards: from a file "
        "of outcomes, or by a rule.",
        blocks=blocked,
        weakens=("bc",) if none_at_all else _except(LEARN_FROM_REWARD, blocked),
        columns=("reward",),
        n=n_lacking,
        n_all=facts.n_episodes,
    )


def _returns_hidden_by_framing(facts: Facts) -> Finding | None:
    """Rewards are there, but the framing adds them to unknown ones."""
    outcomes = facts.outcomes
    n = outcomes.n_rewarded - outcomes.n_known
    if facts.coverage is None or n <= 0:
        return None
    none_known = outcomes.n_known == 0
    too_many = n > MAX_SHARE_LEFT_OUT * facts.n_episodes
    partly = WHOLE_EPISODES if none_known else REWEIGHT if too_many else ()
    blocked = partly if outcomes.has_rewards else LEARN_FROM_REWARD
    return Finding(
        key="returns unknown",
        sentence=f"In {_share(n, outcomes.n_rewarded, 'rewarded episode')} some steps have no reward. This framing adds "
        "rewards up step by step, so the return is unknown too.",
        fix="Choose a framing with the outcome at the end of the episode, or log 0 where a step earns nothing.",
        blocks=blocked,
        weakens=_except(LEARN_FROM_REWARD, blocked),
        columns=("reward",),
        n=n,
        n_all=outcomes.n_rewarded,
    )


def _rewards_where_cut(facts: Facts) -> Finding | None:
    if not facts.outcomes.only_where_cut:
        return None
    return Finding(
        key="rewards where cut",
        sentence="All rewards stand on steps where an episode was cut off, and values aren't learned from those.",
        fix="Log episodes that end by themselves; if these did, log terminal instead of timeout.",
        blocks=BOOTSTRAP if facts.outcomes.has_rewards else ("is", *BOOTSTRAP),
        columns=("terminal", "timeout"),
        n=facts.n_episodes,
        n_all=facts.n_episodes,
    )


def _equal_returns(facts: Facts) -> Finding | None:
    outcomes = facts.outcomes
    if not outcomes.n_known or outcomes.return_low != outcomes.return_high:
        return None
    known = (
        f"The one known return is {outcomes.return_low:g}"
        if outcomes.n_known == 1
        else f"All {outcomes.n_known:,} known returns are {outcomes.return_low:g}"
    )
    return Finding(
        key="equal returns",
        sentence=f"{known}: no episode is better than another, so nothing shows which choices are good.",
        fix="Log failures as well as successes, or a reward that tells them apart.",
        blocks=("fqi", "decision_transformer"),
        weakens=("is", "dr", "fqe"),
        columns=("reward",),
        n=outcomes.n_known,
        n_all=facts.n_episodes,
    )


def _unknown_judge(facts: Facts) -> Finding | None:
    n = facts.outcomes.n_rewarded - facts.episodes_filled["reward_source"]
    if n <= 0:
        return None
    return Finding(
        key="unknown judge",
        sentence=f"Nobody says who judged {_share(n, facts.outcomes.n_rewarded, 'rewarded episode')}: a test, a person, a "
        "model, or a rule.",
        fix="Log reward_source, and verifier_version where the judge changes.",
        weakens=LEARN_FROM_REWARD,
        columns=("reward_source",),
        n=n,
        n_all=facts.outcomes.n_rewarded,
        certain=False,
    )


def _task_or_choice(facts: Facts) -> Finding | None:
    """Whether good choices can be told from easy tasks."""
    tasks = facts.tasks
    if tasks.n_mixed or facts.needless_columns or not facts.outcomes.n_known:
        return None
    n_once = tasks.n_tasks - tasks.n_repeated
    if not tasks.n_tasks:
        sentence = "The log names no tasks, so a good choice can't be told from an easy task."
    elif not tasks.n_repeated:
        sentence = "No task has two episodes with a known return, so a good choice can't be told from an easy task."
    else:
        once = f"{n_once:,} of {tasks.n_tasks:,} tasks were tried once, and none" if n_once else "None"
        sentence = (
            f"{once} of {counted(tasks.n_repeated, 'repeated task')} has both a success and a failure: outcomes may follow the "
            "task and not the choices."
        )
    return Finding(
        key="task or choice",
        sentence=sentence,
        fix="Run each task several times, and log which task it was.",
        weakens=("fqi", "decision_transformer"),
        columns=() if tasks.n_tasks else ("task",),
        n=facts.n_episodes,
        n_all=facts.n_episodes,
    )


# -- coverage ------------------------------------------------------------------------------------------------


def _no_choice(facts: Facts) -> Finding | None:
    cover = facts.coverage
    if cover is None or cover.n_states_with_choice:
        return None
    logged = facts.propensities.n_known == facts.n_steps
    if _mostly_unique(cover, facts.n_steps):
        return Finding(
            key="no state twice",
            sentence=f"The log meets {counted(cover.n_states, 'state')} in {counted(facts.n_steps, 'step')}, none with two "
            "different actions. Tables can't compare actions then; only learners that generalise between states could.",
            fix="Choose a coarser framing, in which states come back.",
            blocks=() if logged else ("is",),
            weakens=_except(("fqi", "is", "dr", "fqe"), () if logged else ("is",)),
            columns=() if logged else ("action_logprob",),
            n=cover.n_states,
            n_all=cover.n_states,
            unit="states",
        )
    return Finding(
        key="no choice",
        sentence="In each state the log always does the same, so it can't say what anything else would have brought.",
        fix="Let the agent try other actions at times: sample, or explore on purpose.",
        blocks=("fqi",) if logged else ("fqi", "is"),
        weakens=("is", "dr", "fqe") if logged else ("dr", "fqe"),
        columns=() if logged else ("action_logprob",),
        n=cover.n_states,
        n_all=cover.n_states,
        unit="states",
    )


def _mostly_unique(cover: Coverage, n_steps: int) -> bool:
    return cover.n_states > MOST * n_steps


def _unseen_pairs(facts: Facts) -> Finding | None:
    cover = facts.coverage
    if cover is None or cover.n_pairs_seen == cover.n_pairs_valid:
        return None
    n = cover.n_pairs_valid - cover.n_pairs_seen
    pair = "valid state-action pair" if cover.validity_known else "state-action pair"
    return Finding(
        key="unseen pairs",
        sentence=f"{_share(n, cover.n_pairs_valid, pair).capitalize()} in the log's states were never seen: a learner that "
        "isn't held back by the data guesses there.",
        fix="Log the actions that were never tried, or keep the learner inside the log (support-constrained, CQL).",
        weakens=BOOTSTRAP,
        n=n,
        n_all=cover.n_pairs_valid,
        unit="pairs",
    )


def _thin_pairs(facts: Facts) -> Finding | None:
    cover = facts.coverage
    if cover is None or cover.share_once is None or cover.share_once < MOST:
        return None
    return Finding(
        key="thin pairs",
        sentence=f"{_share(cover.n_pairs_once, cover.n_pairs_seen, 'seen pair').capitalize()} rest on a single step.",
        fix="Log more episodes, or choose a coarser framing.",
        weakens=_except(EVERY, ("decision_transformer",)),
        n=cover.n_pairs_once,
        n_all=cover.n_pairs_seen,
        unit="pairs",
    )


def _unknown_validity(facts: Facts) -> Finding | None:
    n = facts.n_steps - facts.filled["available_tools"]
    if not n:
        return None
    return Finding(
        key="unknown validity",
        sentence=f"{_silent(n, facts.n_steps, 'step', 'say', 'which actions were available')}, so every action counts as "
        "possible there.",
        fix="Log available_tools: the names of what the agent could have done at each step.",
        weakens=BOOTSTRAP,
        columns=("available_tools",),
        n=n,
        n_all=facts.n_steps,
        unit="steps",
    )


# -- who acted, with what ------------------------------------------------------------------------------------


def _impossible_propensities(facts: Facts) -> Finding | None:
    n = facts.propensities.n_impossible
    if not n:
        return None
    return Finding(
        key="impossible log-probabilities",
        sentence=f"action_logprob is above 0 or infinite on {_share(n, facts.n_steps, 'step')}: no logarithm of a "
        "probability can be.",
        fix="Log the natural logarithm of the probability of the action: 0 or below.",
        blocks=REWEIGHT,
        columns=("action_logprob",),
        n=n,
        n_all=facts.n_steps,
        unit="steps",
    )


def _unknown_propensities(facts: Facts) -> Finding | None:
    chances = facts.propensities
    n = facts.n_steps - chances.n_known
    if not n:
        return None
    cold = (
        f" ({chances.n_cold:,} were sampled at temperature 0: nothing else was tried there)" if chances.n_cold else ""
    )
    fix = "Log action_logprob: how likely the agent was to do what it did."
    if chances.n_token_lists:
        fix = f"Sum the token log-probabilities that {counted(chances.n_token_lists, 'step')} have into action_logprob."
    return Finding(
        key="no log-probabilities",
        sentence=f"{_silent(n, facts.n_steps, 'step', 'say', 'how likely its action was')}{cold}. It has to be estimated, "
        "from how often the log does it in the same state.",
        fix=fix,
        weakens=REWEIGHT,
        columns=("action_logprob",),
        n=n,
        n_all=facts.n_steps,
        unit="steps",
    )


def _certain_behavior(facts: Facts) -> Finding | None:
    if not facts.propensities.n_known or facts.propensities.n_certain < facts.propensities.n_known:
        return None
    return Finding(
        key="certain behavior",
        sentence="Every logged log-probability is 0: the agent is said to have left nothing to chance, so episodes of "
        "another policy get no weight.",
        fix="Check action_logprob; 0 is often a filler. If it is true, let the agent sample.",
        weakens=REWEIGHT,
        columns=("action_logprob",),
        n=facts.propensities.n_certain,
        n_all=facts.n_steps,
        unit="steps",
    )


def _who_acted(facts: Facts) -> Finding | None:
    return _versions(
        facts,
        ("behavior_policy", "prompt_version"),
        key="versions of agent and prompt",
        weakens=("bc", *REWEIGHT),
        meaning="copies and estimates of behavior are of the mixture",
    )


def _what_it_acted_in(facts: Facts) -> Finding | None:
    return _versions(
        facts,
        ("tool_schema_version", "environment_version"),
        key="versions of tools and environment",
        weakens=("fqi", "decision_transformer", "dr", "fqe"),
        meaning="they may answer differently to the same action",
    )


def _versions(
    facts: Facts, columns: tuple[str, ...], *, key: str, weakens: tuple[str, ...], meaning: str
) -> Finding | None:
    """Versions that differ, or that nobody named and that may differ."""
    columns = tuple(name for name in columns if name not in facts.needless_columns)
    unnamed = {name: facts.n_episodes - facts.episodes_filled[name] for name in columns}
    unnamed = {name: n for name, n in unnamed.items() if n}
    several = [name for name in columns if facts.version_counts[name] > 1]
    if not unnamed and not several:
        return None
    never = [name for name, n in unnamed.items() if n == facts.n_episodes]
    sentences = [f"{facts.version_counts[name]:,} values of {name} are pooled: {meaning}." for name in several]
    if never:
        sentences.append(f"No episode names {' or '.join(never)}, so a change can't be seen.")
    for name in [name for name in unnamed if name not in never]:
        sentences.append(f"{_share(unnamed[name], facts.n_episodes, 'episode')} don't name {name}.")
    orders = [f"Log {' and '.join(unnamed)}."] if unnamed else []
    if several:
        orders.append("Keep one version at a time: an edit on the page Coverage.")
    return Finding(
        key=key,
        sentence=" ".join(sentences),
        fix=" ".join(orders),
        weakens=weakens,
        columns=tuple(dict.fromkeys([*unnamed, *several])),
        n=max(unnamed.values(), default=facts.n_episodes),
        n_all=facts.n_episodes,
        certain=bool(several),
    )


# -- calls ---------------------------------------------------------------------------------------------------


def _unreadable_arguments(facts: Facts) -> Finding | None:
    calls = facts.calls
    n = calls.n_calls - facts.calls_filled["arguments"]
    if not n:
        return None
    return Finding(
        key="unreadable arguments",
        sentence=f"The arguments of {_share(n, calls.n_calls, 'tool call')} are missing or can't be read: such calls can be "
        "copied by name only.",
        fix="Log arguments as a JSON object.",
        weakens=("bc",),
        columns=("arguments",),
        n=n,
        n_all=calls.n_calls,
        unit="tool calls",
    )


def _unpaired_results(facts: Facts) -> Finding | None:
    calls = facts.calls
    if not calls.n_unpaired:
        return None
    last = f" ({calls.n_unpaired_last:,} of these on a last step)" if calls.n_unpaired_last else ""
    return Finding(
        key="no result",
        sentence=f"For {_share(calls.n_unpaired, calls.n_calls, 'tool call')} neither a result nor an error is "
        f"recorded{last}: whether the call failed is unknown.",
        fix="Log what came back from every call, also when it is empty.",
        weakens=("fqi", "decision_transformer", "dr", "fqe"),
        columns=("tool_result", "error"),
        n=calls.n_unpaired,
        n_all=calls.n_calls,
        unit="tool calls",
    )


CHECKS: tuple[Callable[[Facts], Finding | None], ...] = (
    _lost_on_import,
    _torn_on_import,
    _unframeable,
    _no_rewards,
    _equal_returns,
    _returns_hidden_by_framing,
    _rewards_where_cut,
    _torn,
    _no_choice,
    _impossible_propensities,
    _few_episodes,
    _unknown_endings,
    _cut_short,
    _unknown_propensities,
    _certain_behavior,
    _task_or_choice,
    _thin_pairs,
    _unseen_pairs,
    _unknown_validity,
    _unknown_judge,
    _who_acted,
    _what_it_acted_in,
    _gaps,
    _unpaired_results,
    _unreadable_arguments,
)
