"""Answers of ToolBench: trees of tool calls that a search went through, and the chains of ToolEval.

A record is one answer, ``{"win", "tree", "answer_generation"}`` or, of ToolEval, ``{"query", "answer"}``, or an object of
answers by the id of their query, each of which then counts as a record.
The branch that the search ended with is the episode of a query. The others are episodes of their own that begin where
they fork off (``parent_episode``), so each call is there once; what was pruned is marked so in the metadata.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offrl_core.importers.episode import Episode, Runs, add_metadata, message, tool_call
from offrl_core.importers.fields import (
    Arguments,
    Gathered,
    Row,
    finite_number,
    label,
    mapping,
    rate_by_form,
    read_arguments,
    sequence,
    stem,
    text_of,
    tools_columns,
    unused_id,
)
from offrl_core.importers.messages import parts_of
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport, Place

EXAMPLE = b"""\
{"win": true, "forward_args": {"single_chain_max_step": 12}, "tree": {"size": 5, "tree": {"node_type": "Action Input", \
"description": "", "children": [{"node_type": "Thought", "description": "Look it up.", "children": [\
{"node_type": "Action", "description": "find_order", "children": [{"node_type": "Action Input", \
"description": "{\\"order\\": 7}", "observation": "{\\"error\\": \\"\\", \\"response\\": \\"on its way\\"}", \
"observation_code": 0, "children": [{"node_type": "Action", "description": "Finish", "children": [\
{"node_type": "Action Input", "description": "{\\"return_type\\": \\"give_answer\\", \\"final_answer\\": \\"On its way.\\"}", \
"observation": "{\\"response\\":\\"successfully giving the final answer.\\"}", "observation_code": 3, \
"children": []}]}]}]}]}]}}, "answer_generation": {"query": "Where is order 7?", "finish_type": "give_answer", \
"function": [{"name": "find_order"}, {"name": "Finish"}]}}
"""

_ANSWERED, _GAVE_UP = 3, 4
_CODES = {
    1: "unknown function",
    2: "arguments not accepted",
    5: "time-out",
    6: "404",
    7: "not subscribed",
    8: "unauthorised",
    9: "too many requests",
    10: "rate limit",
    11: "message error",
    12: "error sending the request",
}
_POLICY = re.compile(r"(\d+)_(.+)")  # files are called like "57_ChatGPT_DFS_woFilter_w2.json"
# A call in ToolEval is the text of a Python dict, which its writer may have cut after some characters.
_CUT_CALL = re.compile(r"\{'name': '([^']*)', 'arguments': ('(?:[^'\\]|\\.)*')?(?:, 'response': '(.*))?", re.DOTALL)


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are answers of ToolBench, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record holds an answer of ToolBench")


def _form(value: Any) -> str | None:
    """Which form a value has, in words; None where it is something else."""
    if not isinstance(value, dict) or not value:
        return None
    if _is_answer(value):
        return "answer_generation (ToolBench)" if "answer_generation" in value else "answer_details (ToolEval)"
    return "queries with answers (ToolEval)" if 2 * sum(map(_is_answer, value.values())) > len(value) else None


def _is_answer(value: Any) -> bool:
    """Whether a value is the answer to one query."""
    found = mapping(value)
    return isinstance(found.get("answer_generation"), dict) or "answer_details" in mapping(found.get("answer"))


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read answers into rows, one per call; each branch of a tree is an episode."""
    runs = Runs(report)
    runs.each(_one_by_one(records, report), lambda record, place: _rows(record, place, runs))
    return runs.done("branches")


def _one_by_one(records: Iterable[Record], report: ImportReport) -> Iterator[Record]:
    """Each answer as a record of its own; those of an object are still under the id of their query."""
    for record in records:
        if _form(record.value) is None or _is_answer(record.value):
            yield record
            continue
        report.accounts.found[record.source] -= 1  # its answers are counted instead
        answers = [{query_id: answer} for query_id, answer in record.value.items()]
        yield from parts_of(record, "answers", answers, report)


def _rows(record: Record, place: Place, runs: Runs) -> list[Row]:
    """All rows of one answer."""
    query_id, answer = None, record.value
    if not _is_answer(answer) and len(mapping(answer)) == 1:
        ((query_id, answer),) = answer.items()
    if not _is_answer(answer):
        place.lose(
            query_id, "not an answer", "the record holds no answer of ToolBench, so it was set aside", record.raw
        )
        return []
    if "answer_generation" in answer:
        return _read_answer(query_id, answer, record, place, runs)
    query_id = query_id or label(answer.get("query_id")) or f"answer-{record.number}"
    return _read_evaluated(query_id, answer, record, place, runs)


def _read_answer(query_id: str | None, value: dict[str, Any], record: Record, place: Place, runs: Runs) -> list[Row]:
    """The branches of one tree, with the verdict on the one that the search ended with."""
    answer = mapping(value["answer_generation"])
    root = mapping(mapping(value.get("tree")).get("tree"))
    branches = list(_tree_branches(root, _Path())) if root else []
    branches = [branch for branch in branches if branch] or _chat_branches(answer)
    name = query_id or stem(record.source)
    named = _POLICY.fullmatch(name)
    shared = tools_columns(answer.get("function")) | {
        "task": named[1] if named else query_id,
        "behavior_policy": named[2] if named else None,
    }
    origin = _Origin(text_of(answer.get("query")), record.number, shared)
    rows, last = _write(
        branches, unused_id(name or f"answer-{record.number}", runs.used_ids, place), origin, runs, place
    )
    if last is not None:
        add_metadata(last, finish_type=label(answer.get("finish_type")))
        win = finite_number(value.get("win"))
        if win is not None:
            last["reward"], last["reward_source"] = win, "verifier (ToolBench, win)"
            if bool(win) != (answer.get("finish_type") == "give_answer"):
                text = f"win is {value['win']} though the run ended with {answer.get('finish_type')}; the reward is win"
                place.mend("win", "verdict and ending disagree", text, answer.get("final_answer"))
    return rows


def _read_evaluated(query_id: str, value: dict[str, Any], record: Record, place: Place, runs: Runs) -> list[Row]:
    """The branches of one query of ToolEval, which gives no verdict."""
    answer = mapping(value.get("answer"))
    branches = []
    for root in sequence(answer.get("answer_details")):
        branches += [branch for branch in _chain_branches(mapping(root), _Path(), (query_id, place)) if branch]
    if len(branches) == 1:
        _complete(branches[0][-1], answer.get("final_answer"))
    shared = tools_columns(value.get("available_tools")) | {
        "task": query_id,
        "behavior_policy": label(answer.get("method")),
    }
    origin = _Origin(text_of(value.get("query")), record.number, shared)
    rows, last = _write(branches, unused_id(query_id or "query", runs.used_ids, place), origin, runs, place)
    if last is not None:
        add_metadata(last, total_steps=finite_number(answer.get("total_steps")))
    return rows


# -- branches ------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Step:
    """One action of a tree: branches that share it hold the same object."""

    action: Row
    path: tuple[int, ...]  # which child to take, from the root on
    earlier: int  # attempts made before from the same point, which the model was shown
    code: int | None = None
    pruned: bool = False
    answers: bool = False
    gives_up: bool = False


@dataclass(frozen=True, slots=True)
class _Path:
    """How a walk came to a node: the steps so far, and what is said but not yet done."""

    steps: tuple[_Step, ...] = ()
    children: tuple[int, ...] = ()
    earlier: int = 0
    thought: str | None = None
    name: str | None = None

    def after(self, step: _Step) -> _Path:
        """The walk after a step."""
        return replace(self, steps=(*self.steps, step), earlier=0, thought=None, name=None)

    def child(self, index: int) -> _Path:
        """The walk at a child."""
        return replace(self, children=(*self.children, index), earlier=self.earlier + index)

    def end(self) -> list[_Step]:
        """The branch, if it ends here: what was said last is a step, too."""
        if self.name is not None:
            action = tool_call(self.name, Arguments("absent"), thought=self.thought)
        elif self.thought is not None:
            action = message(self.thought)
        else:
            return list(self.steps)
        return [*self.steps, _Step(action, self.children, self.earlier)]


@dataclass(frozen=True, slots=True)
class _Origin:
    """What the rows of all branches of a query share."""

    goal: str | None
    record: int
    shared: Row


def _write(
    branches: list[list[_Step]], name: str, origin: _Origin, runs: Runs, place: Place
) -> tuple[list[Row], Row | None]:
    """Rows of all branches, the one that the search ended with first, and the last row of that one."""
    if not branches:
        text = "the answer holds no call and no message, so there is no decision to learn from"
        place.lose(None, "no decision", text, origin.goal or "")
        return [], None
    main = next((branch for branch in reversed(branches) if branch[-1].answers), branches[-1])
    owners: dict[int, str] = {}
    rows: list[Row] = []
    last = None
    for number, branch in enumerate([main, *(other for other in branches if other is not main)]):
        start = next((i for i, step in enumerate(branch) if id(step) not in owners), len(branch))
        parent = owners[id(branch[start - 1])] if start else (name if last else None)
        branch_name = unused_id(f"{name}/branch-{number}", runs.used_ids, place) if number else name
        episode = Episode(branch_name, origin.shared | {"parent_episode": parent})
        for t, step in enumerate(branch[start:], start):
            row = episode.act(step.action, t, _state(step, t, origin))
            row["t"] = t  # a branch goes on counting where it leaves its parent
            owners[id(step)] = branch_name
        ended = branch[-1].answers or branch[-1].gives_up
        rows += episode.close("terminated" if ended else None)
        last = last or (rows[-1] if rows else None)
    return rows, last


def _state(step: _Step, t: int, origin: _Origin) -> Row:
    """What the model saw: the way to this point of the tree, and how many attempts failed from here."""
    where = {"record": origin.record, "tree": list(step.path)}
    state: Row = {"user_goal": origin.goal, "history_length": t, "conversation_history": where}
    return state | ({"earlier_attempts": step.earlier} if step.earlier else {})


# -- nodes ---------------------------------------------------------------------------------------------------


def _tree_branches(node: dict[str, Any], path: _Path) -> Iterator[list[_Step]]:
    """Walk a tree of thoughts, names of actions and their inputs; each leaf ends a branch."""
    kind, text = node.get("node_type"), text_of(node.get("description"))
    if kind == "Thought" and text:
        path = replace(path, thought="\n".join(filter(None, (path.thought, text))))
    elif kind == "Action":
        path = replace(path, name=text or "")
    elif kind == "Action Input" and path.name is not None:
        path = path.after(_call_step(node, text, path))
    children = [child for child in sequence(node.get("children")) if isinstance(child, dict)]
    for index, child in enumerate(children):
        yield from _tree_branches(child, path.child(index))
    if not children:
        yield path.end()


def _call_step(node: dict[str, Any], text: str | None, path: _Path) -> _Step:
    """The step of an input and what the tool answered."""
    code = node.get("observation_code")
    code = code if isinstance(code, int) else None
    observation = text_of(node.get("observation"))
    pruned = node.get("pruned") is True
    action = tool_call(
        path.name,
        read_arguments(text),
        result=observation,
        error=_error(code, observation),
        thought=path.thought,
        observation_code=code,
        pruned=True if pruned else None,
    )
    return _Step(
        action, path.children, path.earlier, code, pruned, answers=code == _ANSWERED, gives_up=code == _GAVE_UP
    )


def _error(code: int | None, observation: str | None) -> str | None:
    """Why a call failed: its code, and the error in the tool's answer."""
    given = mapping(parse_json(observation)[0]).get("error") if observation else None
    said = given if isinstance(given, str) and given else None
    if code in (None, 0, _ANSWERED, _GAVE_UP):
        return said
    kind = _CODES.get(code or 0, f"code {code}")
    return f"{kind}: {said}" if said else kind


def _chain_branches(node: dict[str, Any], path: _Path, where: tuple[str, Place]) -> Iterator[list[_Step]]:
    """Walk the messages of ToolEval, each of which holds the ones after it."""
    role, text = node.get("role"), text_of(node.get("message")) or ""
    if role == "assistant" and text:
        path = replace(path, thought="\n".join(filter(None, (path.thought, text))))
    elif role == "tool":
        path = path.after(_evaluated_step(text, path, *where))
    following = [child for child in sequence(node.get("next")) if isinstance(child, dict)]
    for index, child in enumerate(following):
        yield from _chain_branches(child, path.child(index), where)
    if not following:
        yield path.end()


def _literal(text: str) -> Any:
    """A literal of Python as a value; text that the cut, or a raw line break, left broken stays as it is."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _evaluated_step(text: str, path: _Path, query_id: str, place: Place) -> _Step:
    """The step of a call and its answer in one text."""
    whole = mapping(parse_json(read_arguments(text).text or "")[0])
    name, arguments, response = whole.get("name"), whole.get("arguments"), whole.get("response")
    cut = _CUT_CALL.match(text) if not whole else None
    if cut:
        name, response = cut[1], cut[3]
        arguments = _literal(cut[2]) if cut[2] else None
        text_ = "a call was cut by the writer of the file; what is left of it is read"
        place.mend(query_id, "call cut", text_, text)
    elif not whole:
        place.mend(query_id, "call not readable", "a call can't be read; it is kept as the action 'invalid'", text)
    lost = not whole and arguments is None
    read = Arguments("malformed", None, text) if lost else read_arguments(arguments)
    result = text_of(response)
    action = tool_call(
        label(name), read, result=result, error=_error(None, result), thought=path.thought, cut=True if cut else None
    )
    step = _Step(action, path.children, path.earlier)
    _tell_the_end(step)
    return step


def _tell_the_end(step: _Step) -> None:
    """Say whether a step ends its branch: with an answer, or by giving up."""
    arguments = step.action["arguments"] or "" if step.action["tool"] == "Finish" else ""
    step.answers, step.gives_up = "give_answer" in arguments, "give_up" in arguments


def _complete(last: _Step, final_answer: Any) -> None:
    """Take the arguments of a last call that was cut from the answer, where they stand whole."""
    if last.action.get("tool") == "Finish" and last.action["arguments"] is None:
        whole = read_arguments(final_answer)
        if whole.status == "json_string":
            last.action |= whole.columns()
            _tell_the_end(last)


def _chat_branches(answer: dict[str, Any]) -> list[list[_Step]]:
    """The last branch of a record without a tree, from the messages that were kept for training."""
    kept = sequence(answer.get("train_messages"))
    path = _Path()
    for index, item in enumerate(sequence(kept[-1]) if kept else ()):
        given = mapping(item)
        if given.get("role") == "assistant":
            call = mapping(given.get("function_call"))
            thought = text_of(given.get("content")) or None
            path = replace(path, children=(index,))
            name, arguments = label(call.get("name")), read_arguments(call.get("arguments"))
            action = tool_call(name, arguments, thought=thought) if call else message(thought)
            step = _Step(action, (index,), 0)
            _tell_the_end(step)
            path = path.after(step)
        elif given.get("role") == "function" and path.steps and path.steps[-1].action["tool_result"] is None:
            result = text_of(given.get("content"))
            path.steps[-1].action |= {"tool_result": result, "error": _error(None, result)}
    return [list(path.steps)] if path.steps else []
