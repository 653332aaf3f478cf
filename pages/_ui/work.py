"""The core's work for the pages, done once: thin cached wrappers, named after the core function they call.

Results are immutable, so they are shared between sessions as they are. Keys are content: log fingerprint, framing, edits,
parameters.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import streamlit as st

import offrl_core as orl
from offrl_core.arrays import FloatArray
from offrl_core.behavior import Behavior
from offrl_core.coverage_edits import CoverageEdit, edits_from_link, edits_to_link
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidEdit, OffRLError
from offrl_core.evaluation.comparison import LoggedReturn, logged_return
from offrl_core.evaluation.exact import Truth
from offrl_core.evaluation.ope import Estimate
from offrl_core.framing import default_framing_name
from offrl_core.framing_choices import FramingChoices
from offrl_core.interfaces import TrainedModel
from offrl_core.log import BUNDLED_TITLES, Log
from offrl_core.log_changes import changed, changes_from_link, changes_to_link
from offrl_core.readiness import Readiness
from offrl_core.worlds import LOGGED_IN, WORLDS

from . import browser, reward_forms, state

GENERATED = "generated"
UPLOAD_PREFIX = "upload:"
MOST_GENERATED = 500_000  # steps of a log: some 250 MB, and a class may look at a dozen of them


@st.cache_resource(show_spinner=False, max_entries=8)
def bundled_log(name: str) -> Log:
    """A log of ``data/``."""
    return orl.bundled_log(name)


@st.cache_resource(show_spinner="The agent is acting…", max_entries=16)
def world_log(world: str, behavior: str, n_episodes: int, seed: int) -> Log:
    """A log that an agent of a world wrote."""
    name = f"{WORLDS[world].title}, {n_episodes:,} episodes"
    return orl.collect(world, behavior, n_episodes=n_episodes, seed=seed, name=name, most_steps=MOST_GENERATED)


@st.cache_resource(show_spinner="The agent is acting…", max_entries=16)
def collected_log(right: float, random: float, skip: str, action: str, n_episodes: int, seed: int) -> Log:
    """A log collected with the dials of the Data page; ``skip`` is "task=probability,..."."""
    behavior = Behavior(right_probability=right, random_probability=random)
    for task, probability in read_skips(skip).items():
        behavior = behavior.without(action, (task,), probability)
    return orl.collect(
        "calculator", behavior, n_episodes=n_episodes, seed=seed, name=f"Generated, {n_episodes:,} episodes"
    )


def read_skips(text: str) -> dict[str, float]:
    """Parse "mul=1.0,add=0.5"; what can't be read is left out."""
    skips = {}
    for part in text.split(","):
        task, _, number = part.partition("=")
        try:
            probability = float(number)
        except ValueError:
            continue
        if 0 < probability <= 1:
            skips[task] = probability
    return skips


@dataclass(frozen=True, slots=True)
class Current:
    """What all pages look at: the chosen log before edits, and the framed dataset after them (or why there is none)."""

    log: Log
    edits: tuple[CoverageEdit, ...]
    framing_name: str  # as in a link: the name of a preset, or choices written out
    dataset: Dataset | None
    problem: str

    @property
    def framing(self) -> FramingChoices:
        """What counts as state, action and reward."""
        return FramingChoices.from_link(self.framing_name)

    @property
    def world(self) -> str | None:
        """Name of the world behind the log; None for imported logs, whose truth is unknown."""
        return self.log.source.world if self.log.source else None


def current() -> Current:
    """The log, edits and dataset that the session's fields ask for."""
    log, edits = chosen_log(), current_edits()
    framing_name = current_framing(log)
    try:
        return Current(log, edits, framing_name, framed(log, framing_name, edits), "")
    except OffRLError as error:
        return Current(log, edits, framing_name, None, str(error))


def current_framing(log: Log) -> str:
    """The framing of the link; one that can't be read is dropped from it with a warning."""
    # A world's truth belongs to the world's own states, so its logs have no other framing here.
    chosen = state.get("framing") if log.source is None else ""
    if not chosen:
        return default_framing_name(log)
    try:
        FramingChoices.from_link(chosen)
    except OffRLError as error:
        state.put("framing", "")
        state.warn(f"The framing of this link was left out. {error}")
        return default_framing_name(log)
    return chosen


def chosen_log() -> Log:
    """The log of the field ``data``; a name that leads nowhere falls back to the first bundled log, and says so."""
    name = state.get("data")
    if not name.startswith(UPLOAD_PREFIX):
        state.put("files", "")
    if name in BUNDLED_TITLES:
        return bundled_log(name)
    if name == GENERATED and state.get("gen_world") != "calculator":
        return _chosen_world_log()
    if name == GENERATED:
        dials = [state.get(f"gen_{dial}") for dial in ("right", "random", "skip", "action", "episodes", "seed")]
        return collected_log(*dials)
    upload = _loaded(name.removeprefix(UPLOAD_PREFIX))
    if upload is not None:
        state.take_up(name)
        state.put("files", _file_names(upload))
        return upload
    needed = f"The link needs {state.get('files')}, which" if state.get("files") else "The link names a log that"
    state.warn(
        f"{needed} isn't loaded in this session. Open Data and load the file; until then the bundled log is shown. "
        "The framing and the edits of the link wait for the file."
    )
    state.set_aside(name)
    state.put("data", "calculator")
    return bundled_log("calculator")


MAX_FILES_NAMED = 3  # in a link


def _file_names(log: Log) -> str:
    """The files of a log in a few words: "a.json, b.json"."""
    names = [name[:60] for name in log.report.files]
    more = f" and {len(names) - MAX_FILES_NAMED:,} more" if len(names) > MAX_FILES_NAMED else ""
    return ", ".join(names[:MAX_FILES_NAMED]) + more


def _chosen_world_log() -> Log:
    """The log of the chosen world and agent; where it can't be made, the bundled log and a warning."""
    world, spec = state.get("gen_world"), WORLDS[state.get("gen_world")]
    if spec.missing:
        state.warn(f"{spec.missing} Until then the bundled log is shown.")
        state.put("data", "calculator")
        return bundled_log("calculator")
    behavior = state.get("gen_behavior") if state.get("gen_behavior") in spec.behaviors else "logger"
    try:
        return world_log(world, behavior, state.get("gen_episodes"), state.get("gen_seed"))
    except OffRLError as error:
        state.warn(f"{error} Until then the bundled log is shown.")
        state.put("data", "calculator")  # not to be tried again with each run of a page
        return bundled_log("calculator")


def deployment(world: str | None) -> str:
    """The hidden truth to compare with: the chosen one where this world has it, else ``works``."""
    chosen: str = state.get("deployment")
    return chosen if world is None or chosen in WORLDS[world].deployments else LOGGED_IN


def show_log(log: Log) -> None:
    """Make a log one of this session's and look at it; edits and places of the log before don't belong to it."""
    name = UPLOAD_PREFIX + log.fingerprint
    if log.fingerprint in state.uploads() and state.get("data") == name:
        return  # the same files once more
    state.uploads()[log.fingerprint] = log
    browser.keep(log)
    state.put("data", state.awaited() if state.awaited().startswith(name) else name)
    state.put("edits", "")
    state.forget_place()


# -- logs that were changed after they were read: in the field ``data``, the changes stand behind the fingerprint --


def changes() -> list[Any]:
    """What was done to the log on screen after it was read; see :mod:`offrl_core.log_changes`."""
    _, text = _fingerprint_and_changes()
    return changes_from_link(text) if text else []


def show_changed(changes: list[Any]) -> None:
    """Look at the log on screen after other changes; framing, edits and places stay."""
    state.put("data", UPLOAD_PREFIX + _key_after(changes))


def log_after(changes: list[Any]) -> Log:
    """The log on screen after other changes."""
    return _loaded(_key_after(changes)) or chosen_log()


def is_loaded() -> bool:
    """Whether the log on screen was read from files of the visitor."""
    return str(state.get("data")).startswith(UPLOAD_PREFIX)


def kept_files() -> Any:
    """What the log on screen was read from, where that is still kept for this browser; else None."""
    found = browser.kept(_fingerprint_and_changes()[0]) if is_loaded() else None
    return found and found.files


def _fingerprint_and_changes() -> tuple[str, str]:
    fingerprint, _, text = str(state.get("data")).removeprefix(UPLOAD_PREFIX).partition(":")
    return fingerprint, text


def _key_after(changes: list[Any]) -> str:
    fingerprint, _ = _fingerprint_and_changes()
    return f"{fingerprint}:{changes_to_link(changes)}" if changes else fingerprint


def _loaded(key: str) -> Log | None:
    """A log of this session, changed as its key says; changes that can't be done are dropped from the link with a warning."""
    logs = state.uploads()
    fingerprint, _, text = key.partition(":")
    if fingerprint not in logs and (found := browser.kept(fingerprint)):
        logs[fingerprint] = found.log
    if fingerprint not in logs:
        return None
    log: Log = logs[fingerprint]
    browser.keep(log)
    if key in logs:
        return logs[key]
    try:
        with _patience(log.n_steps, "Changing the log as the link says…"):
            for change in changes_from_link(text):
                log = changed(log, change, reward_forms.loaded_files())
    except OffRLError as error:
        state.warn(f"The link changes the log after it was read, and that can't be done here. {error}")
        state.put("data", UPLOAD_PREFIX + fingerprint)
        return logs[fingerprint]
    logs[key] = log
    return log


def log_titles() -> dict[str, str]:
    """Value of the field ``data`` -> title, for every log this visitor can choose."""
    loaded = {UPLOAD_PREFIX + key: log.name for key, log in state.uploads().items()}
    return {**BUNDLED_TITLES, GENERATED: "Generated, with your dials", **loaded}


def current_edits() -> tuple[CoverageEdit, ...]:
    """The edits of the link; those that can't be read are dropped from it with a warning."""
    try:
        return edits_from_link(state.get("edits"))
    except OffRLError as error:
        state.put("edits", "")
        state.warn(f"The coverage edits of this link were left out. {error}")
        return ()


def add_edit(edit: CoverageEdit) -> None:
    """Append an edit, once: the click for it may come twice."""
    if edit not in (edits := current_edits()):
        state.put("edits", edits_to_link([*edits, edit]))


def remove_edit(place: int, edit: CoverageEdit) -> None:
    """Take out the edit at a place, if it is still there: the click for it may come twice."""
    edits = list(current_edits())
    if edits[place : place + 1] == [edit]:
        del edits[place]
        state.put("edits", edits_to_link(edits))


def framed(log: Log, framing_name: str, edits: tuple[CoverageEdit, ...]) -> Dataset:
    """:func:`offrl_core.frame`, once per log, framing and edits."""
    with _patience(log.n_steps, f"Framing {log.n_steps:,} steps…"):
        framed = _framed if log.source else _framed_upload
        return framed(log.fingerprint, framing_name, edits, log)


LARGE = (
    100_000  # steps of a log, or pairs of a dataset, from which on work may take longer than a visitor waits in silence
)


def _patience(size: int, sentence: str) -> AbstractContextManager[None]:
    """Say what is going on where it may take long; elsewhere nothing, because each spinner takes a place on the page."""
    return st.spinner(sentence) if size > LARGE else nullcontext()


def _frame(fingerprint: str, framing_name: str, edits: tuple[CoverageEdit, ...], _log: Log) -> Dataset:
    return orl.frame(_log, FramingChoices.from_link(framing_name).framing(), edits)


# What a visitor brought goes with the session: a dataset holds its whole log.
_framed = st.cache_resource(show_spinner=False, max_entries=128, ttl="2h")(_frame)
_framed_upload = st.cache_resource(show_spinner=False, max_entries=32, ttl="2h", scope="session")(_frame)


def dataset_key(dataset: Dataset) -> str:
    """What identifies a dataset in caches. One text: Streamlit hashes each part of a key in each rerun."""
    return f"{dataset.log.fingerprint} {dataset.framing.token} {dataset.edits!r}"


def policy_key(dataset: Dataset, model: TrainedModel) -> str:
    """What identifies a policy on a dataset, however it was learned: most steps of a dial leave it as it is."""
    return f"{dataset_key(dataset)} {model.policy.digest()}"


def trained(dataset: Dataset, algorithm: str, seed: int = 0, **parameters: Any) -> TrainedModel:
    """:func:`offrl_core.train`, once per dataset, algorithm, parameters and seed."""
    title = orl.ALGORITHMS[algorithm].short if algorithm in orl.ALGORITHMS else "A learner"
    with _patience(dataset.valid_mask.size, f"{title} learns from {dataset.n_states:,} states…"):
        return _trained(dataset_key(dataset), algorithm, seed, parameters, dataset)


@st.cache_resource(show_spinner=False, max_entries=512, ttl="2h")
def _trained(key: str, algorithm: str, seed: int, parameters: dict[str, Any], _dataset: Dataset) -> TrainedModel:
    return orl.train(_dataset, algorithm, seed=seed, **parameters)


def truth(dataset: Dataset, model: TrainedModel, deployment: str) -> Truth | None:
    """:func:`offrl_core.evaluate` where a world stands behind the log, else None."""
    return _truth(policy_key(dataset, model), deployment, dataset, model)


@st.cache_resource(show_spinner=False, max_entries=1024, ttl="2h")
def _truth(key: str, deployment: str, _dataset: Dataset, _model: TrainedModel) -> Truth | None:
    source = _dataset.log.source
    return orl.evaluate(_model.policy, source.world, deployment) if source else None


@st.cache_resource(show_spinner=False, max_entries=64, ttl="2h")
def behavior_truth(fingerprint: str, deployment: str, _log: Log) -> Truth:
    """Exact worth of the policy that wrote a world's log."""
    if _log.source is None:
        raise InvalidEdit("No world stands behind an imported log.")
    return orl.behavior_truth(_log.source.behavior, _log.source.world, deployment)


def exact_q(dataset: Dataset, model: TrainedModel, deployment: str) -> FloatArray | None:
    """:func:`offrl_core.exact_q_of`, once."""
    return _exact_q(policy_key(dataset, model), deployment, dataset, model)


@st.cache_resource(show_spinner=False, max_entries=512, ttl="2h")
def _exact_q(key: str, deployment: str, _dataset: Dataset, _model: TrainedModel) -> FloatArray | None:
    return orl.exact_q_of(_model, _dataset, deployment)


def own_return(dataset: Dataset) -> LoggedReturn:
    """:func:`offrl_core.evaluation.comparison.logged_return`, once."""
    return _own_return(dataset_key(dataset), dataset)


@st.cache_resource(show_spinner=False, max_entries=256, ttl="2h")
def _own_return(key: str, _dataset: Dataset) -> LoggedReturn:
    return logged_return(_dataset)


def estimated(dataset: Dataset, model: TrainedModel) -> Estimate:
    """:func:`offrl_core.estimate` by weighted importance sampling, once; on the very episodes that the model learned from."""
    return _estimated(policy_key(dataset, model), dataset, model)


@st.cache_resource(show_spinner=False, max_entries=512, ttl="2h")
def _estimated(key: str, _dataset: Dataset, _model: TrainedModel) -> Estimate:
    return orl.estimate(_model.policy, _dataset, "wis", trained_on=_dataset)


def assessed(dataset: Dataset) -> Readiness:
    """:func:`offrl_core.assess`, once."""
    return _assessed(dataset_key(dataset), dataset)


@st.cache_resource(show_spinner="Looking at what the log can support…", max_entries=64, ttl="2h")
def _assessed(key: str, _dataset: Dataset) -> Readiness:
    return orl.assess(_dataset.log, _dataset)
