"""Agent trajectories in ATIF (versions 1.0 to 1.7), as Harbor and others write them, with Harbor's results beside.

A record is one trajectory: ``{"schema_version": "ATIF-v1.x", "agent", "steps": [...]}``. Each call of a step of the
agent becomes a row. Sub-agents, embedded or in files of their own, are episodes with ``parent_episode``; a continuation
in another file goes on with the episode it continues. Steps marked ``is_copied_context`` repeat what was already read.

The reward is never in the trajectory: Harbor keeps it in ``result.json`` of the trial, uploaded together with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from offrl_core.importers.episode import Episode, Runs, add_metadata, looks_failed, message, seen, tool_call
from offrl_core.importers.fields import (
    Gathered,
    Row,
    finite_number,
    label,
    mapping,
    read_arguments,
    sequence,
    stem,
    text_of,
    tools_columns,
    unused_id,
)
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.terminus import commands_in
from offrl_core.schema import canonical_json, short_hash

EXAMPLE = b"""\
{"schema_version": "ATIF-v1.6", "session_id": "hello-1", "agent": {"name": "shop-agent", "version": "1", \
"model_name": "gpt-4o"}, "steps": [{"step_id": 1, "source": "user", "message": "Write hello to hello.txt."}, \
{"step_id": 2, "source": "agent", "message": "I write it.", "tool_calls": [{"tool_call_id": "call_1", \
"function_name": "bash", "arguments": {"command": "echo hello > hello.txt"}}], \
"observation": {"results": [{"source_call_id": "call_1", "content": ""}]}, \
"metrics": {"cost_usd": 0.002, "logprobs": [-0.25, -0.5]}}, \
{"step_id": 3, "source": "agent", "message": "Done."}]}
{"trial_name": "hello-1", "task_name": "hello", "verifier_result": {"rewards": {"reward": 1.0}}, "exception_info": null}
"""

_WITHOUT_REWARDS = "ATIF keeps no rewards: upload the result.json of each trial together with its trajectory."
_LIMIT_ERRORS = ("timeout", "limit", "budget", "maxturns", "max_turns")


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are trajectories in ATIF, 0 to 1, and why."""
    trajectories = [version for value in values if (version := _version(value))]
    n_results = sum(map(_is_result, values))
    n, n_others = len(trajectories), len(values) - n_results
    if n:
        return n / n_others, f"found schema_version {trajectories[0]} in {n} of the first {n_others} records"
    if n_results:
        found = f"found results of Harbor's trials in {n_results} of the first {len(values)} records"
        return n_results / len(values) / 2, found
    return 0.0, "no record has a schema_version of ATIF"


def _version(value: Any) -> str | None:
    """The version of ATIF that a record names."""
    version = _trajectory(value).get("schema_version")
    return version[:20] if isinstance(version, str) and version.startswith("ATIF-") else None


def _trajectory(value: Any) -> dict[str, Any]:
    """The trajectory in a record: the record itself, or one level down."""
    outer = mapping(value)
    return outer if "schema_version" in outer else mapping(outer.get("trajectory"))


def _is_result(value: Any) -> bool:
    """Whether a record is Harbor's result of a trial."""
    return "trial_name" in mapping(value) and "verifier_result" in value


# -- reading -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Upload:
    """What reading one trajectory must know of the others."""

    runs: Runs
    results: list[Record] = field(default_factory=list)
    chains: list[list[Record]] = field(default_factory=list)  # a trajectory and its continuations
    parents: dict[str, str] = field(default_factory=dict)  # name of a sub-agent's session or file -> parent episode
    children: set[str | None] = field(default_factory=set)  # the names of all sub-agents
    by_name: dict[str | None, int] = field(default_factory=dict)  # position of a result, by trial or id
    by_folder: dict[PurePath, int] = field(default_factory=dict)
    used_results: set[int] = field(default_factory=set)

    def add_result(self, record: Record) -> None:
        """Remember the result of a trial, by all that a trajectory may know it by."""
        position = len(self.results)
        self.runs.report.accounts.beside(record.source, "result")
        self.results.append(record)
        self.by_folder.setdefault(PurePath(record.source).parent, position)
        for name in (label(record.value.get("trial_name")), label(record.value.get("id"))):
            if name:
                self.by_name.setdefault(name, position)


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read trajectories into rows, one per call; results of trials among the records become rewards."""
    upload = _Upload(Runs(report))
    trajectories = []
    for record in records:
        if _version(record.value):
            trajectories.append(record)
            for step in sequence(_trajectory(record.value).get("steps")):
                upload.children |= set(_sub_agents(_results(step)))
        elif _is_result(record.value):
            upload.add_result(record)
        else:
            text = "the record is neither a trajectory in ATIF nor the result of a trial, so it was set aside"
            report.at(record.source, record.number).lose(None, "not a trajectory", text, record.raw)
    upload.chains = _chains(trajectories)
    for chain in upload.chains:
        with upload.runs.guarded(chain[0]) as place:
            _read_chain(chain, upload, place)
    _link(upload)
    _say_which_results_are_unused(upload)
    return upload.runs.done("trajectories", "steps", _WITHOUT_REWARDS)


def _chains(records: list[Record]) -> list[list[Record]]:
    """Put each continuation behind the trajectory that names it."""
    following: dict[int, Record] = {}
    for record in records:
        reference = _trajectory(record.value).get("continued_trajectory_ref")
        if not isinstance(reference, str) or not reference:
            continue
        found = [other for other in records if other is not record and _is_named(other, reference, record)]
        if found:
            following[id(record)] = found[0]
    continuations = {id(record) for record in following.values()}
    chains = []
    for record in records:
        if id(record) in continuations:
            continue
        chain = [record]
        while (after := following.get(id(chain[-1]))) and after not in chain:
            chain.append(after)
        chains.append(chain)
    in_chains = {id(record) for chain in chains for record in chain}
    return chains + [[record] for record in records if id(record) not in in_chains]  # files that continue in a circle


def _is_named(record: Record, reference: str, by: Record) -> bool:
    """Whether a reference of a trajectory names another one's file, in the same folder."""
    name, path = PurePath(reference).name, PurePath(record.source)
    same_folder = path.parent == PurePath(by.source).parent
    # Files that were collected from many folders got a prefix: "hello.trajectory.cont-1.json".
    prefix = path.name.removesuffix(name)
    return same_folder and path.name.endswith(name) and PurePath(by.source).name.startswith(prefix)


def _read_chain(chain: list[Record], upload: _Upload, place: Place) -> None:
    """Read a trajectory and its continuations into one episode, and the sub-agents embedded in them."""
    trajectory = _trajectory(chain[0].value)
    result = _result_of(chain[0], upload)
    name = label(trajectory.get("trajectory_id")) or label(trajectory.get("session_id")) or stem(chain[0].source)
    episode = Episode(unused_id(name or "trajectory", upload.runs.used_ids, place), _shared(trajectory, result))
    starts = []
    for position, record in enumerate(chain):
        starts.append(len(episode.rows))
        prefix = f"{position + 1}." if position else ""  # steps are counted anew in each file
        _follow(episode, _trajectory(record.value), record, prefix, upload)
    if not episode.rows:
        text = "no step of the trajectory is the agent's own, so there is no decision to learn from"
        for record in chain:
            upload.runs.report.at(record.source, record.number).lose(None, "no decision", text, record.raw)
    _close(episode, result, place)
    for record, start, end in zip(chain, starts, [*starts[1:], len(episode.rows)], strict=True):
        upload.runs.gathered.add(record, episode.rows[start:end])
        if episode.rows:  # a continuation that only repeats was read as well
            upload.runs.gathered.raw[record.source, record.number] = record.raw
        _read_embedded(_trajectory(record.value), episode.id, record, upload)


def _read_embedded(trajectory: dict[str, Any], parent: str, record: Record, upload: _Upload) -> None:
    """Read the sub-agents inside a trajectory, and theirs: each is an episode of its own."""
    place = upload.runs.report.at(record.source, record.number)
    for index, child in enumerate(sequence(trajectory.get("subagent_trajectories"))):
        if not isinstance(child, dict):
            text = "this is no trajectory of a sub-agent, so it was set aside"
            place.lose(f"subagent_trajectories[{index}]", "not a trajectory", text, child)
            continue
        name = label(child.get("trajectory_id")) or label(child.get("session_id")) or f"{parent}/{index + 1}"
        episode = Episode(unused_id(name, upload.runs.used_ids, place), _shared(child, {}) | {"parent_episode": parent})
        _follow(episode, child, record, "", upload)
        upload.runs.gathered.add(record, episode.close())
        _read_embedded(child, episode.id, record, upload)


def _shared(trajectory: dict[str, Any], result: dict[str, Any]) -> Row:
    """Columns that are the same on every row of a trajectory."""
    agent = mapping(trajectory.get("agent")) or mapping(result.get("agent_info"))
    first = mapping(next(iter(sequence(trajectory.get("steps"))), None))
    prompt = text_of(first.get("message")) if first.get("source") == "system" else None
    names = [label(agent.get("name")), label(agent.get("version"))]
    model = label(agent.get("model_name")) or label(mapping(agent.get("model_info")).get("name"))
    policy = " ".join(name for name in names if name)
    return tools_columns(agent.get("tool_definitions")) | {
        "task": label(result.get("task_name")),
        "behavior_policy": ", ".join(part for part in (policy, model) if part) or None,
        "temperature": finite_number(mapping(agent.get("extra")).get("temperature")),
        "prompt_version": short_hash(prompt) if prompt else None,
    }


# -- steps ---------------------------------------------------------------------------------------------------


def _follow(episode: Episode, trajectory: dict[str, Any], record: Record, prefix: str, upload: _Upload) -> None:
    """Add the agent's steps of a trajectory to its episode; all others are context."""
    place = upload.runs.report.at(record.source, record.number)
    goal = None
    for index, step in enumerate(sequence(trajectory.get("steps"))):
        source = mapping(step).get("source")
        if not isinstance(step, dict) or source not in ("agent", "user", "system"):
            text = "this is no step (an object whose source is agent, user or system), so it was set aside"
            place.lose(f"steps[{index}]", "not a step", text, step)
            continue
        results = _results(step)
        upload.parents |= dict.fromkeys(_sub_agents(results), episode.id)
        said = text_of(step.get("message"))
        if source == "user":
            goal = goal or said
        if step.get("is_copied_context"):
            upload.runs.skipped["copied context"] += 1
        elif source == "agent":
            state = seen(goal, record.number, "steps", index)
            _act(episode, (step, said), f"{prefix}{index}", state, results, place)
        elif source == "user" and episode.rows and _is_unanswered(episode.rows[-1]):
            episode.rows[-1]["tool_result"] = said
        elif index:
            upload.runs.skipped[f"{source} message"] += 1


def _is_unanswered(row: Row) -> bool:
    return row["action"] == "message" and row["tool_result"] is None


def _act(
    episode: Episode,
    said: tuple[dict[str, Any], str | None],
    decision: str,
    state: Row,
    results: list[Any],
    place: Place,
) -> None:
    """Add the rows of one step of the agent."""
    step, text = said
    calls, thought, found_in_text = sequence(step.get("tool_calls")), text or None, False
    if not calls:
        calls, thought, found_in_text = _calls_in_text(text, thought)
    answers = _pair(calls, results, place)
    rows = []
    for call, answer in zip(calls, answers, strict=True):
        rows.append(episode.act(_call_action(call, answer, step, thought), decision, state))
        if found_in_text:
            add_metadata(rows[-1], call_found_in_text=True)
    if not calls:
        came = "\n".join(filter(None, (text_of(result.get("content")) for result in results))) if results else None
        reasoning = text_of(step.get("reasoning_content")) or None
        rows.append(episode.act(message(text, result=came, reasoning=reasoning), decision, state))
    rows[0] |= _metrics(step)
    if model := label(step.get("model_name")):
        agent = (rows[0]["behavior_policy"] or "").partition(", ")[0]
        for row in rows:
            row["behavior_policy"] = f"{agent}, {model}" if agent else model


def _calls_in_text(text: str | None, thought: str | None) -> tuple[list[Any], str | None, bool]:
    """The commands of an agent that writes them as JSON into its message (Terminus), and its thought."""
    found = commands_in(text)
    if found is None:
        return [], thought, False
    calls: list[Any] = [{"function_name": name, "arguments": arguments} for name, arguments in found.calls]
    return calls, found.thought, True


def _pair(calls: list[Any], results: list[Any], place: Place) -> list[dict[str, Any] | None]:
    """Find each call's result: by id, else by order; one that stands alone came after all calls of its step."""
    paired: list[dict[str, Any] | None] = [None] * len(calls)
    ids = [label(mapping(call).get("tool_call_id")) for call in calls]
    for result in results if calls else ():
        source = label(result.get("source_call_id"))
        free = [i for i, taken in enumerate(paired) if taken is None]
        fits = [i for i in free if source and ids[i] == source] or [i for i in free if not (source and ids[i])]
        if not fits:
            place.lose("observation", "result without a call", "a result belongs to no call of its step", result)
        elif len(results) == 1 and not source:
            paired[fits[-1]] = result
        else:
            paired[fits[0]] = result
            if not (source and ids[fits[0]] == source):
                text = "a call or its result has no id; they were paired by their order in the step"
                place.mend("source_call_id", "result paired by order", text, result)
    return paired


def _call_action(call: Any, answer: dict[str, Any] | None, step: dict[str, Any], thought: str | None) -> Row:
    """The columns of one call. A result without content was recorded, and is empty."""
    given, answer_extra = mapping(call), mapping(mapping(answer).get("extra"))
    result = None if answer is None else text_of(answer.get("content")) or ""
    flagged = answer_extra.get("is_error") is True or answer_extra.get("status") == "error"
    error = (result or "error") if flagged else looks_failed(result)
    name = given.get("function_name")
    return tool_call(
        name if isinstance(name, str) else None,
        read_arguments(given.get("arguments")),
        result=result,
        error=error,
        call_id=label(given.get("tool_call_id")),
        thought=thought,
        reasoning=text_of(step.get("reasoning_content")) or None,
        error_guessed=True if error and not flagged else None,
        llm_call_count=step.get("llm_call_count") if step.get("llm_call_count") == 0 else None,
    )


def _metrics(step: dict[str, Any]) -> Row:
    """Cost, time and log probabilities of a reply; they stand on its first row alone, or they would count twice."""
    metrics = mapping(step.get("metrics"))
    logprobs = metrics.get("logprobs")
    numbers = [finite_number(value) for value in sequence(logprobs)]
    total = sum(number for number in numbers if number is not None) if numbers and None not in numbers else None
    return {
        "cost_usd": finite_number(metrics.get("cost_usd")),
        "latency_ms": finite_number(mapping(metrics.get("extra")).get("latency_ms")),
        "action_logprob": total,
        "action_logprobs": canonical_json(logprobs) if numbers else None,
    }


# -- sub-agents and results ----------------------------------------------------------------------------------


def _results(step: Any) -> list[dict[str, Any]]:
    """The results in the observation of a step."""
    observation = mapping(mapping(step).get("observation"))
    return [result for result in sequence(observation.get("results")) if isinstance(result, dict)]


def _sub_agents(results: list[dict[str, Any]]) -> list[str]:
    """What the sub-agents that a step started are called: by trajectory, by file, or else by session."""
    names = []
    for result in results:
        for reference in sequence(result.get("subagent_trajectory_ref")):
            given = mapping(reference)
            path, trajectory = label(given.get("trajectory_path")), label(given.get("trajectory_id"))
            # Since version 1.7 a sub-agent may share the session of its parent, so a trajectory's id goes before.
            session = None if trajectory else label(given.get("session_id"))
            names += [trajectory, session, PurePath(path).name if path else None]
    return [name for name in names if name]


def _link(upload: _Upload) -> None:
    """Link the sub-agents that are files of their own to the episodes that started them."""
    for row in upload.runs.gathered.rows:
        names = (row["episode_id"].partition("#")[0], PurePath(row["source_file"]).name)
        parent = next((upload.parents[name] for name in names if name in upload.parents), None)
        if parent and parent != row["episode_id"] and not row.get("parent_episode"):
            row["parent_episode"] = parent


def _result_of(record: Record, upload: _Upload) -> dict[str, Any]:
    """The result of the trial that a trajectory belongs to: by name, by folder, or because there is one of each.

    A trial has one result; the sub-agents that lie in its folder don't earn it a second time.
    """
    path = PurePath(record.source)
    trajectory = _trajectory(record.value)
    ids = (label(trajectory.get("trajectory_id")), label(trajectory.get("session_id")))
    if upload.children & {*ids, path.name}:
        return {}
    positions = [upload.by_name[name] for name in (ids[1], *path.parts) if name in upload.by_name]
    alone = len(upload.results) == len(upload.chains) == 1
    for folder in path.parents:
        position = upload.by_folder.get(folder)
        if position is not None and (folder.name or alone) and _same_agent(record, upload.results[position]):
            positions.append(position)
    position = next((position for position in positions if position not in upload.used_results), None)
    if position is None:
        return {}
    upload.used_results.add(position)
    found = upload.results[position]
    upload.runs.gathered.raw[found.source, found.number] = found.raw
    return mapping(found.value)


def _same_agent(record: Record, result: Record) -> bool:
    """Whether a trajectory and a result name the same agent, or one of them none."""
    names = {
        label(mapping(_trajectory(record.value).get("agent")).get("name")),
        label(mapping(result.value.get("agent_info")).get("name")),
    }
    return len(names - {None}) < 2


def _close(episode: Episode, result: dict[str, Any], place: Place) -> None:
    """Write the result of the trial on the last row: reward, and whether a limit cut the agent off."""
    exception = mapping(result.get("exception_info"))
    kind = label(exception.get("exception_type"))
    verified = mapping(result.get("verifier_result"))
    if exception and episode.rows:
        add_metadata(episode.rows[-1], exception=kind, exception_message=label(exception.get("exception_message")))
    end = None
    if any(limit in (kind or "").lower() for limit in _LIMIT_ERRORS):
        end = "truncated"
    elif verified and "exception_info" in result and not exception:
        end = "terminated"  # the agent stopped by itself, and was judged
    episode.close(end, **_reward(mapping(verified.get("rewards")), place))


def _reward(rewards: dict[str, Any], place: Place) -> Row:
    """The reward of a trial and its parts: the one called so, else the first of them."""
    parts = {name: number for name, value in rewards.items() if (number := finite_number(value)) is not None}
    if rewards and len(parts) < len(rewards):
        text = "a reward is no finite number; it is kept as unknown (NULL), not as 0"
        place.mend("verifier_result.rewards", "reward is not a number", text, rewards)
    if not parts:
        return {}
    name = "reward" if "reward" in parts else min(parts)
    if len(parts) > 1:
        note = f"Of several rewards ({', '.join(sorted(parts))}), {name!r} was taken; all are in reward_components."
        if note not in place.report.notes:
            place.report.notes.append(note)
    return {
        "reward": parts[name],
        "reward_components": canonical_json(parts),
        "reward_source": f"verifier (Harbor, {name})",
    }


def _say_which_results_are_unused(upload: _Upload) -> None:
    """A result whose trajectory is missing, or can't be told, is reported."""
    for position, record in enumerate(upload.results):
        if position not in upload.used_results:
            text = "this result of a trial belongs to no trajectory here; upload both, in the folder of the trial"
            upload.runs.report.at(record.source, record.number).lose(None, "result without a run", text, record.raw)
