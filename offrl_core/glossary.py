"""Terms of the field as a newcomer meets them: a sentence, the equation, the source. Tooltips are made from here."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """What a word means, its equation in plain signs, and where it comes from."""

    sentence: str
    equation: str = ""
    source: str = ""

    @property
    def tooltip(self) -> str:
        """All three in one text."""
        parts = [self.sentence, self.equation, f"Source: {self.source}." if self.source else ""]
        return "\n\n".join(part for part in parts if part)


TERMS: dict[str, Term] = {
    "torn": Term(
        "A part of a record of the episode was set aside, or a record between two of its own: something that happened in it is "
        "missing. Methods that need whole sequences weigh it wrongly; what is lost before its first or behind its last record "
        "isn't counted here.",
    ),
    "exact": Term(
        "Computed, not sampled: every task and every pair of hidden numbers is enumerated and weighed by the policy.",
        "V(s) = Σₐ π(a|s) · [r(s,a) + γ Σ P(s'|s,a) V(s')]",
        "Sutton & Barto 2018, section 4.1",
    ),
    "choice": Term(
        "Bars are what naive FQI believes each operation is worth. Hatched orange: the log never shows it, so the value is the "
        "guess Q₀ and nothing else. Green mark: what it is really worth once deployed.",
        "Q(s,a) = expected discounted return of doing a in s and following the policy afterwards",
        "extrapolation error: Fujimoto, Meger & Precup 2019",
    ),
    "support": Term(
        "A pair of state and action is supported when the log shows it at least min_count times; hatched pairs are not.",
        "supported(s,a) ⇔ n(s,a) ≥ min_count",
        "Fujimoto, Meger & Precup 2019",
    ),
    "extrapolation_error": Term(
        "Learned value minus exact value on pairs outside the support: the part that no row of the log checks.",
        "Q_learned(s,a) − Q_exact(s,a), n(s,a) < min_count",
        "Fujimoto, Meger & Precup 2019",
    ),
    "overestimation": Term(
        "Learned minus exact value at the action the policy picks.",
        "Q_learned(s,π(s)) − Q_exact(s,π(s))",
        "Thrun & Schwartz 1993",
    ),
    "true_q": Term(
        "Exact value of taking the action once and following this policy afterwards. Where a state stands for several hidden "
        "ones, they are averaged as the log meets them.",
        "Q^π(s,a) = r(s,a) + γ Σ P(s'|s,a) V^π(s')",
        "Sutton & Barto 2018, section 3.5",
    ),
    "ledger": Term(
        "A value is followed to its end along what the log supports. Blue: rewards that rows show. Hatched: guesses for pairs "
        "without data, and what a state gained because the policy chooses an unsupported action there. Grey: what the learner "
        "itself adds or takes off. Shares are of the amounts without their signs, taken at each start before the mean.",
        "Q = Σₖ Qₖ,  Qₖ = amountₖ + γ P Vₖ;  gained(s) = V(s) − value of the best supported action in s",
        "extrapolation error: Fujimoto, Meger & Precup 2019; the account is this app's own",
    ),
    "leaving": Term(
        "The first step at which an episode of the policy takes a pair outside the support. Until then it does only what rows "
        "of the log show. The first step of an episode is t = 0.",
        "P(min{t: n(sₜ,aₜ) < min_count} = t)",
    ),
    "ceiling": Term(
        "The most that any policy can be worth on the counts of the log if it only does what the log shows often enough. No "
        "learner that stays inside beats it there. It can be luck where rows are few, and it can be too low where one state "
        "stands for several situations; in worlds its exact value stands beside it.",
        "max over π with π(a|s) > 0 ⇒ n(s,a) ≥ min_count of E[Σ γᵗ rₜ], on the log's counts",
        "batch-constrained optimum: Fujimoto, Meger & Precup 2019, section 4.1",
    ),
    "forecast": Term(
        "Made from counts alone, before any learner runs: what copying would be worth, what staying inside could be worth at "
        "best, and whether a maximum over all valid actions would leave the log. Score it once the learners ran.",
    ),
    "best_path": Term(
        "What the best policy inside the log does, along what follows most often. Numbers are rows of the log behind each step: "
        "where there are few, the path is thin.",
    ),
    "trajectory_quality": Term(
        "How good the log's episodes are on average. In worlds 0 is acting at random and 1 the best possible; elsewhere 0 is the "
        "worst and 1 the best logged episode. High: copying may be enough.",
        "(mean return − low) / (high − low)",
        "TQ, after Schweighofer et al. 2022",
    ),
    "state_action_coverage": Term(
        "Share of all valid pairs of state and action that the log shows: in worlds of every state that can be reached, "
        "elsewhere of the states seen. High: learners without a guard have less to guess.",
        "#{(s,a): n(s,a) ≥ 1} / #{(s,a) valid}",
        "SACo, after Schweighofer et al. 2022",
    ),
    "behavior_entropy": Term(
        "How varied the log's choices are where there is one. 0: always the same action; 100 %: all valid ones equally often.",
        "mean over steps of H(π_b(·|s)) / log #valid(s)",
        "Shannon 1948",
    ),
    "lookahead": Term(
        "How far one must look beyond the log's own values to act as well as the ceiling. 1: improving the log's policy once is "
        "enough; more: values must travel back over several steps, as learners of values let them.",
        "smallest k: greedy on k − 1 value iterations of Q^π_b reaches the ceiling",
        "the k of the effective horizon, Laidlaw, Russell & Dragan 2023; here on counts, from the log's own policy",
    ),
    "thin_choices": Term(
        "Share of the states in which the best logged action was seen only a few times. There the ceiling may be luck.",
        "#{s: n(s, best) < k} / #{s}",
    ),
    "concentrability": Term(
        "How many times as often a policy visits a pair as the log does, at worst. Large: much hangs on few rows. Infinite: the "
        "policy does what the log never shows.",
        "max d^π(s,a) / d^D(s,a)",
        "Rashidinejad et al. 2021, definition 1",
    ),
    "curve": Term(
        "An action is thinned out of the log at random and the ceiling is computed anew each time. Where the curve falls, the "
        "log begins to miss it.",
    ),
    "shift": Term(
        "A policy goes where the log has been only as long as it does what the log does. Visits are per episode; those of the "
        "policy are exact in worlds, and elsewhere weighted from logged episodes, or refused.",
        "d^π(s,a) against d^D(s,a)",
        "Levine et al. 2020, section 2.4",
    ),
    "total_variation": Term(
        "Share of the episodes that would have to do something else at this step for the two sides to look alike. 0: the same; "
        "100 %: nothing in common. Being over counts as something one does. A small log differs a little by chance alone. "
        "The first step of an episode is t = 0.",
        "½ Σ |p_t(s,a) − q_t(s,a)|",
    ),
    "flow": Term(
        "Which action follows which, from the start on. Widths are shares of the episodes; orange and marked ✕: taken where the "
        "log doesn't support it.",
    ),
    "compounding": Term(
        "A copy of the policy that slips now and then: a slip may lead to states from which the next steps go wrong, too. The "
        "loss is exact; the worst case grows with the square of the number of steps T. "
        "Both lines beside it are scaled by the range of a step's reward, 0 for being over included.",
        "J(policy) − J(copy) ≤ min(ε T², T) × range; a slip that spoils only its own step: ≤ ε T × range",
        "Ross & Bagnell 2010, theorem 2.1",
    ),
    "coverage": Term(
        "Which pairs of state and action a log supports. What it doesn't cover, it can't teach. Counts are out of the valid "
        "pairs in the states that the log shows; only Ceiling, in worlds, counts out of all that can be reached."
    ),
    "spread": Term(
        "Networks that differ in nothing but their seed agree where rows speak, and each makes up a value of its own elsewhere. "
        "Agreement is no proof: an error that all share doesn't show.",
        "std over seeds of Q(s,a)",
        "Lakshminarayanan, Pritzel & Blundell 2017",
    ),
    "split": Term(
        "A policy that is judged on the episodes it learned from looks better than it is: it chose what happened to go well "
        "there. So it learns from one part and is judged on the other.",
        "",
        "Hastie, Tibshirani & Friedman 2009, section 7.2",
    ),
    "rehearsal": Term(
        "A world collects fresh logs like this one, every estimator judges each of them, and the exact value tells how often the "
        "intervals were right. For this world and logs of this size; elsewhere it is a rehearsal, not a promise.",
        "#{logs with low ≤ V^π ≤ high} / #{logs with an estimate}",
    ),
    "asked_return": Term(
        "The Decision Transformer is asked for a return and does what the log did in episodes that got it. Inside the range of "
        "the log's returns it can be held to its word; beyond it nobody ever got so much, and it can only guess what that takes.",
        "a ~ π(· | ĝ₁, s₁, a₁, …, ĝₜ, sₜ), ĝₜ₊₁ = (ĝₜ − rₜ) / γ",
        "Chen et al. 2021, figure 4",
    ),
    "success": Term("Probability that an episode solves its task."),
    "return": Term("Sum of the rewards of an episode, later ones counted less.", "G = Σ γᵗ rₜ", "Sutton & Barto 2018"),
    "framing": Term(
        "Which part of a step counts as state, as action and as reward: the same trace becomes another decision process.",
        "trace → (sₜ, aₜ, rₜ, γ)",
    ),
    "density": Term(
        "Share of the valid pairs of state and action that the log shows at all, out of those in the states it shows.",
        "#{(s,a): n(s,a) ≥ 1} / #{(s,a) valid}",
    ),
    "aliasing": Term(
        "One state key stands for situations that differ: the same action in it leads sometimes to success and sometimes not. "
        "A pair is mixed when its outcomes differ by more than 5 % of their spread over the log.",
        "max G − min G > 0.05 · spread, G = sum of the rewards from the step to the end",
        "perceptual aliasing: Whitehead & Ballard 1991",
    ),
    "left_open": Term(
        "How far off the outcome of a step is when it is predicted from its pair of state and action in other episodes, "
        "against no key at all. 0 %: the pair tells all. All of it: it tells nothing, or its pieces are too small to learn from.",
        "Σ (G − Ĝ(s,a))² / Σ (G − Ḡ)², Ĝ from the other four fifths of the episodes",
    ),
    "extrapolation": Term(
        "Beyond the actions that the log shows, a network only continues what it saw. Nothing pulls its Q there towards what is "
        "so, and a policy that seeks the highest Q is drawn to where Q errs upwards.",
        "π(s) = argmaxₐ Q(s,a), a outside {a : (s,a) in the log}",
        "Fujimoto, Meger & Precup 2019, section 3",
    ),
    "deadly_triad": Term(
        "Three things that are harmless in pairs and can explode together: values that share parameters, targets made of guesses "
        "about later values, and a log that visits pairs in other proportions than the learned policy would.",
        "function approximation + bootstrapping + off-policy data",
        "Sutton & Barto 2018, section 11.3",
    ),
    "growth": Term(
        "What one sweep over the log multiplies every error by (the spectral radius, in closed form). Above 1 it explodes, "
        "however small it began; below 1 it dies away.",
        "ρ = spectral radius of the sweep, largest |Q| after k sweeps ∝ ρᵏ",
        "Tsitsiklis & Van Roy 1996, section 5; Baird 1995, section 3",
    ),
}
