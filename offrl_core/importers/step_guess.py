"""Guess which field of a home-made log means what, from the names of its fields and from what they hold.

Each guess says why, with a confidence, so that a person can judge and change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from offrl_core.importers.fields import sequence
from offrl_core.importers.step_cells import is_missing, parsed_cell
from offrl_core.importers.step_leaks import KNOWN_AT_THE_END, NEVER_IN_A_STATE, TURNS_AT_THE_END, Episodes
from offrl_core.importers.step_mapping import SIDE_BY_SIDE, Item, StepMapping, Why, items_of, natural
from offrl_core.importers.step_roles import (
    ENVELOPES,
    GUESSED_ROLES,
    Field,
    is_called_a_state,
    is_called_like,
    is_outcome,
    is_part_of_a_state,
    likeliest_state,
    looks_like_choices,
    may_be_a_reward,
    may_be_a_state,
    rate,
)

_LISTS_OF_STEPS = ("steps", "trajectory", "transitions", "history", "events", "turns", "actions", "interactions")
_LISTS_OF_EPISODES = ("episodes", "trajectories", "rollouts", "runs", "results", "data", "logs")
_LISTS_BESIDE_ACTIONS = ("observations", "states", "obs", "rewards")
_STEPS_LOOKED_AT = 1000
_LEAST_CONFIDENCE = 0.3
_BY_CONTENT = 0.35  # sure enough to be shown to a person, not to take a file of an unknown format for a step table
_DEPTH = 2  # of the objects that are opened
_MOST_KEYS = 40  # of an object that is opened; more are names of things, not fields
_LEAST_SHARE_THAT_CHANGE = 0.5  # of the episodes: an action is chosen anew at each step

_Chosen = dict[str, tuple[Field, Why]]


def guess_mapping(values: Sequence[Any]) -> StepMapping:
    """Guess the role of each field; ``why`` of the mapping says how sure and for what reason.

    Args:
        values: the first records of a log, some hundreds.
    """
    objects = [value for value in values if isinstance(value, dict)]
    steps = _where_steps_lie(objects)
    items: list[Item] = []
    for value in objects:
        items += items_of(value, steps)
        if len(items) >= _STEPS_LOOKED_AT:
            break
    items = items[:_STEPS_LOOKED_AT]
    fields = _fields(items)
    chosen = _choose(fields, nested=steps is not None, alone=len({id(item.outer) for item in items}) == 1)
    episodes = Episodes(items, StepMapping(steps=steps, **_paths(chosen, "episode", "step")))
    _choose_by_content(fields, chosen, episodes)
    state = list(_state(fields, chosen, episodes))
    _take_observation_for_result(fields, chosen, state)
    why = [reason for _, reason in chosen.values()]
    if steps:
        where = "lists side by side, one per field" if steps == SIDE_BY_SIDE else f"a list `{steps}`"
        why.insert(0, Why("steps", steps, 0.9, f"most records hold {where}"))
    return StepMapping(
        **_paths(chosen, *chosen),
        steps=steps,
        state=tuple(reason.path for reason in state),
        reward_at_end=_is_reward_at_end(chosen, items),
        why=(*why, *state),
    )


def fields_of(values: Sequence[Any], steps: str | None) -> list[Field]:
    """The fields that a mapping can name, with what they hold, where the steps of each record lie at ``steps``."""
    return _fields([item for value in values if isinstance(value, dict) for item in items_of(value, steps)])


def lists_of_steps(values: Sequence[Any]) -> list[str]:
    """Fields of the records that hold lists of objects, and so may hold the steps."""
    objects = [value for value in values if isinstance(value, dict)]
    found = [
        key for value in objects for key in value if isinstance(key, str) and _is_list_of_objects(_inside(value, key))
    ]
    guessed = _where_steps_lie(objects)
    return list(dict.fromkeys([*([guessed] if guessed else []), *found]))


def _choose(fields: Sequence[Field], *, nested: bool, alone: bool) -> _Chosen:
    """The best field for each role, where one fits at all."""
    chosen: _Chosen = {}
    for role in GUESSED_ROLES:
        taken = {found.path for found, _ in chosen.values()}
        rated = [(*rate(role, found, nested=nested, alone=alone), found) for found in fields if found.path not in taken]
        confidence, reason, found = max(rated, key=lambda item: item[0], default=(0.0, "", Field("")))
        if confidence >= _LEAST_CONFIDENCE:
            chosen[role] = found, Why(role, found.path, round(confidence, 2), reason)
    if "result" in chosen and chosen["result"][0].kind in ("vector", "number"):
        del chosen["result"]  # numbers that follow an action are the next state, which the next row holds
    return chosen


def _paths(chosen: _Chosen, *roles: str) -> dict[str, Any]:
    return {role: chosen[role][0].path for role in roles if role in chosen}


def _choose_by_content(fields: Sequence[Field], chosen: _Chosen, episodes: Episodes) -> None:
    """Find outcome, flag of the last step and action by what fields hold, where no name tells them."""
    free = _free(fields, chosen)
    told = {found.path: episodes.tells_the_end(found.path) for found in free}
    outcomes = [f for f in free if told[f.path] == KNOWN_AT_THE_END and may_be_a_reward(f)]
    if "reward" not in chosen and len(outcomes) == 1:  # of several, only a person can tell
        _take("reward", outcomes[0], f"{KNOWN_AT_THE_END}, as an outcome", chosen)
    ends = [f for f in free if told[f.path] == TURNS_AT_THE_END]
    if ends and not chosen.keys() & {"terminal", "timeout", "done"}:
        _take("done", ends[0], f"{TURNS_AT_THE_END}, as a flag of the end", chosen)
    if "action" not in chosen:
        choices = [
            f
            for f in _free(fields, chosen)
            if looks_like_choices(f) and episodes.share_that_change(f.path) >= _LEAST_SHARE_THAT_CHANGE
        ]
        if choices:
            found = min(choices, key=lambda f: f.path.count("."))
            _take("action", found, f"has {found.n_distinct:,} distinct texts and changes from step to step", chosen)


def _take(role: str, found: Field, told: str, chosen: _Chosen) -> None:
    chosen[role] = found, Why(role, found.path, _BY_CONTENT, f"`{found.path}` {told}; its name doesn't say so")


def _is_reward_at_end(chosen: _Chosen, items: Sequence[Item]) -> bool:
    """Whether the rows of an episode repeat its outcome."""
    if "reward" not in chosen:
        return False
    reward, episode = chosen["reward"][0], chosen.get("episode")
    path = episode[0].path if episode else None
    episodes = [str(item.get(path)) if path else "" for item in items]
    return is_outcome(reward, episodes, [item.get(reward.path) for item in items])


# -- where the steps lie -------------------------------------------------------------------------------------


def _where_steps_lie(objects: Sequence[dict[str, Any]]) -> str | None:
    """Path of the list of steps in each record; None where a record is a step itself."""
    ways = Counter(way for value in objects if (way := _way_to_steps(value)))
    way, n = ways.most_common(1)[0] if ways else ("", 0)
    return way if 2 * n > len(objects) else None


def _way_to_steps(value: dict[str, Any]) -> str | None:
    """Where one record holds a list of steps."""
    for key in _LISTS_OF_STEPS:
        if _is_list_of_objects(_inside(value, key)):
            return key
    if _are_side_by_side(value):
        return SIDE_BY_SIDE
    for key in _LISTS_OF_EPISODES:
        episodes = _inside(value, key)
        if _is_list_of_objects(episodes):
            first = next(item for item in episodes if isinstance(item, dict))
            inner = next((k for k in _LISTS_OF_STEPS if _is_list_of_objects(_inside(first, k))), None)
            return f"{key}.{inner}" if inner else key
    return None


def _inside(value: dict[str, Any], key: str) -> Any:
    """A value of an object, also where it is written as text."""
    item = value.get(key)
    return parsed_cell(item) if isinstance(item, str) else item


def _is_list_of_objects(value: Any) -> bool:
    """Whether a list holds objects; a few other things between them (remarks, nulls) don't matter."""
    return 2 * sum(isinstance(item, dict) for item in sequence(value)) > len(sequence(value))


def _are_side_by_side(value: dict[str, Any]) -> bool:
    """Whether a record holds its actions as one list and its states or rewards as others (states may be one more)."""
    n = len(sequence(_inside(value, "actions")))
    others = [len(item) for key in _LISTS_BESIDE_ACTIONS if isinstance(item := _inside(value, key), list)]
    return n > 0 and bool(others) and all(length in (n, n + 1) for length in others)


# -- the fields ----------------------------------------------------------------------------------------------


def _fields(items: Sequence[Item]) -> list[Field]:
    """Fields of the steps and of the records around them, with their values."""
    found: dict[str, Field] = {}
    for item in items:
        cells = [*_cells(item.inner), *((f"/{path}", value) for path, value in _cells(item.outer))]
        for path, value in cells:
            column = found.setdefault(path, Field(path))
            if not is_missing(value):
                column.values.append(value)
    for column in found.values():
        column.finish(len(items))
    return list(found.values())


def _cells(value: dict[str, Any], depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Keys of an object, and keys of the objects in it, also where these are written as text."""
    for key, item in value.items():
        if isinstance(key, str) and key:
            yield key, item
            inside = _inside(value, key)
            if depth and isinstance(inside, dict) and (key.lower() in ENVELOPES or len(inside) <= _MOST_KEYS):
                yield from ((f"{key}.{name}", cell) for name, cell in _cells(inside, depth - 1))


# -- state and observation -----------------------------------------------------------------------------------


def _state(fields: Sequence[Field], chosen: _Chosen, episodes: Episodes) -> Iterator[Why]:
    """Fields of the state: one called so, else all that are numbered or named alike, else what is left without a role.

    None of them is called like a role that is known only after the action, or tells the end of its episode.
    """
    free = [f for f in _free(fields, chosen) if not _is_known_afterwards(f, episodes)]
    one = likeliest_state([f for f in free if is_called_a_state(f)])
    if one and all(f in free for f in _parts(one, fields)):
        yield Why("state", one.path, 0.9, f"`{one.path}` looks like the state: {one.in_words}")
        return
    if alike := [f for f in free if is_part_of_a_state(f) or (one and f in _parts(one, fields))]:
        for found in sorted(alike, key=lambda f: natural(f.path)):
            several = f"one of {len(alike)} fields named" if len(alike) > 1 else "named"
            yield Why(
                "state", found.path, 0.85, f"`{found.path}` is {several} like a part of the state: {found.in_words}"
            )
        return
    for found in filter(may_be_a_state, free):
        reason = f"`{found.path}` has no other role and may be part of the state, if it was known before the action"
        yield Why("state", found.path, 0.4, reason)


def _free(fields: Sequence[Field], chosen: _Chosen) -> list[Field]:
    """Fields of the steps without a role, those outside of objects that have one or are an answer."""
    taken = {found.path for found, _ in chosen.values()} | {f.path for f in fields if _is_answer(f, chosen)}
    inside = tuple(f"{path}." for path in taken)
    return [
        f
        for f in fields
        if f.kind != "none" and not f.is_outer and f.path not in taken and not f.path.startswith(inside)
    ]


def _is_known_afterwards(found: Field, episodes: Episodes) -> bool:
    return is_called_like(NEVER_IN_A_STATE, found) or bool(episodes.tells_the_end(found.path))


def _parts(whole: Field, fields: Sequence[Field]) -> list[Field]:
    """The fields that an object was opened into."""
    return [f for f in fields if f.path.startswith(f"{whole.path}.")]


def _is_answer(found: Field, chosen: _Chosen) -> bool:
    """Whether an "observation" is the answer to an action: text or an object, beside actions that have names."""
    by_name = "action" in chosen and chosen["action"][0].kind in ("text", "object", "list")
    return found.name in ("observation", "obs") and found.kind in ("text", "object", "list") and by_name


def _take_observation_for_result(fields: Sequence[Field], chosen: _Chosen, state: Sequence[Why]) -> None:
    """What came back is the observation, where it isn't the state and nothing is called a result."""
    used = {why.path for why in state} | {found.path for found, _ in chosen.values()}
    found = next((f for f in fields if f.name in ("observation", "obs") and f.path not in used), None)
    if found and found.kind in ("text", "object", "list") and "result" not in chosen:
        reason = f"`{found.path}` looks like what came back: {found.in_words}"
        chosen["result"] = found, Why("result", found.path, 0.7, reason)
