"""Logs in the text of ReAct: Thought, Action, Observation, line by line, as papers print and publish them.

A file is one record, whose value is its text; each trial in it is an episode. Markers stand at the start of a line and,
where the trial numbers them, count only with a number: an observation may run over lines and hold the word "Action".
ALFWorld's logs, with ``> go to desk 1``, are read as well. The verdict is in the last observation ("Answer is CORRECT"),
in the heading of the section, or in the line STATUS; examples in front of a task are no steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers.episode import Episode, Runs, add_metadata, looks_failed, message, tool_call
from offrl_core.importers.fields import Arguments, Gathered, Row, mapping, read_arguments, stem, unused_id
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json
from offrl_core.wording import counted

EXAMPLE = b"""\
------------- BEGIN CORRECT AGENTS -------------

Question: Where is order 7?
Thought 1: I look it up.
Action 1: Search[order 7]
Observation 1: Order 7 is on its way.
Thought 2: That is the answer.
Action 2: Finish[on its way]
Observation 2: Answer is CORRECT

------------- BEGIN INCORRECT AGENTS -------------

Question: Where is order 8?
Thought 1: I guess.
Action 1: Finish[lost]
Observation 1: Answer is INCORRECT
"""

_MARKER = re.compile(
    r"(Context|Question|Claim|Thought|Action Input|Action|Observation|Final Answer|Correct answer|Reflections?)"
    r"(?: (\d+))?:[ \t]*(.*)",
    re.DOTALL,
)
_SECTION = re.compile(r"-+ *BEGIN (CORRECT|INCORRECT|HALTED) AGENTS *-+")
_TRIAL = re.compile(r"(?:BEGIN )?TRIAL (\d+)", re.IGNORECASE)
_EXAMPLES_END = re.compile(r"\(?END OF EXAMPLES\)?|Here is the task:")
_VERDICT = re.compile(r"Answer is (CORRECT|INCORRECT)")
_BRACKETS = re.compile(r"([\w .-]+?)\s*\[(.*)\]\.?", re.DOTALL)
_WORLD = re.compile(r"(?:Environment #(\d+):|(You are in the middle of a room))")
_STATUS = re.compile(r"STATUS: (OK|FAIL)")
_COMMAND = re.compile(r"> ?(.+)")
_FAILED = ("Invalid Action", "Could not find")


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are texts of ReAct, 0 to 1, and why."""
    n_texts = sum(isinstance(value, str) and _is_react(value) for value in values)
    if n_texts:
        return n_texts / len(values), f"found lines of actions and observations in {n_texts} of {len(values)} texts"
    if n := sum(map(_is_world_result, values)):
        return n / len(values), f"found results of ALFWorld without steps in {n} of the first {len(values)} records"
    return 0.0, "no record is a text with lines of actions and observations"


def _is_react(text: str) -> bool:
    kinds = {match[1] for line in text.split("\n") if (match := _MARKER.match(line))}
    if "Action" in kinds and kinds & {"Observation", "Thought"}:
        return True
    return _WORLD.search(text) is not None and sum(line.startswith(">") for line in text.split("\n")) > 1


def _is_world_result(value: Any) -> bool:
    return "is_success" in mapping(value) and "memory" in value


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read texts into rows, one per action; each trial is an episode."""
    runs = Runs(report)
    runs.each(records, lambda record, place: _rows(record, place, runs))
    if halted := sum(row.get("end_reason") == "truncated" for row in runs.last_rows()):
        report.notes.append(
            f"{counted(halted, 'trial')} ended at a limit, so nobody judged an answer: no reward, not 0."
        )
    return runs.done("trials", "lines")


def _rows(record: Record, place: Place, runs: Runs) -> list[Row]:
    """All rows of one text."""
    if problem := _no_steps(record.value):
        place.lose(None, "no steps", problem, record.raw)
        return []
    reader = _Reader(record, place)
    for number, line in enumerate(record.value.replace("\r\n", "\n").split("\n")):
        reader.take(number, line)
    if reader.n_examples:
        examples = counted(reader.n_examples, "trial")
        runs.report.notes.append(f"{record.source}: no step comes from {examples} that the prompt gives as example.")
    trials = [trial for trial in reader.trials if trial.steps]
    if unanswered := len(reader.trials) - len(trials):
        questions = counted(unanswered, "question")
        runs.report.notes.append(f"{record.source}: no step comes from {questions} with no action in the text.")
    if not trials:
        place.lose(None, "no decision", "the text holds no action, so there is no decision to learn from", record.raw)
    rows: list[Row] = []
    for number, trial in enumerate(trials, 1):
        rows += _trial_rows(trial, number, record, place, runs)
    return rows


def _no_steps(value: Any) -> str | None:
    """Why a record that belongs to such logs gives no steps, and what to give instead."""
    if _is_world_result(value):
        return "this says whether an environment was solved, but holds no step; give the log of the trial (trial_0.log)"
    return None if isinstance(value, str) else "this record holds no text of actions; it was set aside"


# -- lines to trials -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Step:
    """One action as written: what came before it and after it."""

    line: int
    action: str | None = None
    input: str | None = None
    thought: str | None = None
    observation: str | None = None
    is_command: bool = False  # of ALFWorld: "> look"
    is_answer: bool = False  # "Final Answer: ..."


@dataclass(slots=True)
class _Trial:
    """One attempt at a task: its heading, its steps, and who said what of its end."""

    line: int
    goal: str | None = None
    section: str | None = None
    number: str | None = None  # of the environment or trial, as the file says
    steps: list[_Step] = field(default_factory=list)
    numbered: bool | None = None  # whether its markers have numbers; None before the first one
    status: str | None = None
    correct_answer: str | None = None
    context: str | None = None
    reflection: str | None = None


def _begins_again(trial: _Trial, kind: str, count: str | None) -> bool:
    """Whether a marker with the number 1 begins another trial of the same task."""
    if count != "1" or kind not in ("Thought", "Action") or not trial.steps:
        return False
    return kind == "Thought" or trial.steps[-1].action is not None


@dataclass(slots=True)
class _Reader:
    """Takes the lines of a text in order. ``into`` names the part that a line without a marker goes on with."""

    record: Record
    place: Place
    trials: list[_Trial] = field(default_factory=list)
    section: str | None = None
    round: str | None = None
    into: str | None = None
    context: str | None = None  # given for the question that follows
    block: int = 0  # trials before this one belong to an earlier block of the text
    n_examples: int = 0

    def take(self, number: int, line: str) -> None:
        """Take one line: a heading, a marker, a command, or the rest of what came before."""
        if self._is_heading(number, line):
            return
        marker = _MARKER.match(line)
        if marker and self._counts(marker):
            self._mark(number, marker[1], marker[3], marker[2])
        elif command := _COMMAND.match(line) if self._in_world() else None:
            self._trial(number).steps.append(_Step(number, command[1].strip(), is_command=True))
            self.into = "observation"
        else:
            self._append(line)

    def _is_heading(self, number: int, line: str) -> bool:
        """Take a line that divides the text; a step before it has ended."""
        if section := _SECTION.fullmatch(line.strip()):
            self.section, self.into, self.block = section[1], None, len(self.trials)
        elif _EXAMPLES_END.search(line):
            shown = [trial for trial in self.trials[self.block :] if trial.steps]
            self.n_examples += len(shown)
            del self.trials[self.block :]
            self.into = None
        elif world := _WORLD.match(line):
            self._open_world(number, line, world[1])
        elif status := _STATUS.match(line):
            self._trial(number).status, self.into = status[1], None
        elif trial := _TRIAL.fullmatch(line.strip("#- ")):
            self.round, self.section, self.into, self.block = trial[1], None, None, len(self.trials)
        else:
            return bool(line) and not line.strip("#-= ")  # a rule
        return True

    def _open_world(self, number: int, line: str, environment: str | None) -> None:
        """Begin a trial of ALFWorld: at its number, or at the description of the room."""
        if environment is not None:
            self.block = len(self.trials)
            self.round = environment
            self.into = None
        else:
            self.trials.append(_Trial(number, line, self.section, self.round))
            self.into = "goal"

    def _in_world(self) -> bool:
        return bool(self.trials) and (self.trials[-1].goal or "").startswith("You are in the middle of a room")

    def _counts(self, marker: re.Match[str]) -> bool:
        """Whether a marker is one: in a numbered trial, only those with a number are."""
        if marker[1] in ("Context", "Question", "Claim", "Correct answer", "Reflection", "Reflections", "Final Answer"):
            return True
        numbered = self.trials[-1].numbered if self.trials else None
        return numbered is None or numbered == (marker[2] is not None)

    def _mark(self, number: int, kind: str, text: str, count: str | None) -> None:
        """Take a line with a marker."""
        if kind == "Context":  # what the next question is asked about
            self.context, self.into = text, "context"
            return
        if self.into == "context" and kind not in ("Question", "Claim"):
            self._ask(number, None)  # the question was left out
        if kind in ("Question", "Claim"):
            self._ask(number, text)
            return
        trial = self._trial(number)
        if kind in ("Correct answer", "Reflection", "Reflections"):
            self.into = "correct_answer" if kind == "Correct answer" else "reflection"
            setattr(trial, self.into, text)
            return
        if _begins_again(trial, kind, count):
            trial = _Trial(number, trial.goal, self.section, self.round)
            self.trials.append(trial)
        if kind != "Final Answer":
            trial.numbered = count is not None
        self._mark_step(trial, number, kind, text)

    def _ask(self, number: int, text: str | None) -> None:
        """Begin a trial at its question; a context holds for the question after it, and for that asked again."""
        last = self.trials[-1] if self.trials else None
        context = (self.context or "").strip() or None
        if context is None and last is not None and last.goal == text:
            context = last.context
        self.trials.append(_Trial(number, text, self.section, self.round, context=context))
        self.context, self.into = None, "goal"

    def _mark_step(self, trial: _Trial, number: int, kind: str, text: str) -> None:
        """Take a line with a marker of a step."""
        last = trial.steps[-1] if trial.steps else None
        is_new = last is None or last.action is not None or last.observation is not None
        if kind == "Thought" or (is_new and kind in ("Action", "Final Answer")):
            last = _Step(number)
            trial.steps.append(last)
        elif last is None:  # an observation before any action: the start of the task
            self.into = None
            return
        self.into = {"Action Input": "input", "Final Answer": "action"}.get(kind, kind.lower())
        setattr(last, self.into, text)
        last.is_answer = last.is_answer or kind == "Final Answer"

    def _trial(self, number: int) -> _Trial:
        """The trial at work; a text may begin without a question."""
        if not self.trials:
            self.trials.append(_Trial(number, None, self.section, self.round))
        return self.trials[-1]

    def _append(self, line: str) -> None:
        """Let a line without a marker go on with the part before it."""
        if self.into == "context":
            self.context = f"{self.context}\n{line}"
            return
        if self.into is None or not self.trials:
            return
        trial = self.trials[-1]
        part: Any = trial if self.into in ("goal", "correct_answer", "reflection") else trial.steps[-1]
        before = getattr(part, self.into)
        setattr(part, self.into, line if before is None else f"{before}\n{line}")


# -- trials to rows ------------------------------------------------------------------------------------------


def _trial_rows(trial: _Trial, number: int, record: Record, place: Place, runs: Runs) -> list[Row]:
    """The rows of one trial, with the verdict on its last one."""
    name = unused_id(f"{stem(record.source) or 'trial'}-{number}", runs.used_ids, place)
    goal = (trial.goal or "").strip() or None
    episode = Episode(name, {"task": goal.rpartition("Your task is to: ")[2][:200] if goal else None})
    for t, step in enumerate(trial.steps):
        where = {"record": record.number, "lines": [trial.line, step.line]}
        state: Row = {"user_goal": goal, "history_length": t, "conversation_history": where}
        if trial.reflection:
            state["memory"] = trial.reflection.strip()
        if trial.context:
            state["retrieved_context"] = trial.context
        episode.act(_action(step), t, state)
    last = trial.steps[-1]
    finished = last.is_answer or (last.action or "").startswith("Finish") or trial.status == "OK"
    end = "terminated" if finished else "truncated" if trial.section == "HALTED" else None
    rows = episode.close(end, **_reward(trial, place))
    add_metadata(rows[-1], number_in_log=trial.number, correct_answer=(trial.correct_answer or "").strip() or None)
    return rows


def _reward(trial: _Trial, place: Place) -> Row:
    """1 or 0 from the verdict line, else from the heading; a halted trial was not judged."""
    verdicts: dict[str, float] = {}
    if line := _VERDICT.search(trial.steps[-1].observation or ""):
        verdicts["verdict line"] = float(line[1] == "CORRECT")
    if trial.status:
        verdicts["STATUS line"] = float(trial.status == "OK")
    if trial.section in ("CORRECT", "INCORRECT"):
        verdicts["heading of the section"] = float(trial.section == "CORRECT")
    if not verdicts:
        return {}
    if len(set(verdicts.values())) > 1:
        text = f"the {' and the '.join(verdicts)} disagree; the first was taken"
        place.mend(None, "verdicts disagree", text, trial.goal or "")
    source, reward = next(iter(verdicts.items()))
    return {"reward": reward, "reward_source": f"verifier ({source})"}


def _action(step: _Step) -> Row:
    """The columns of one step."""
    thought = (step.thought or "").strip() or None
    observation = None if step.observation is None else step.observation.strip()
    written = (step.action or "").strip()
    if step.is_answer:
        return message(written, thought=thought)
    if not written:
        return message(thought, result=observation)
    if step.is_command:
        return _command(written, observation)
    name, arguments = _call(written, step.input)
    failed = observation if (observation or "").startswith(_FAILED) else looks_failed(observation)
    guessed = True if failed else None
    return tool_call(name, arguments, result=observation, error=failed, thought=thought, error_guessed=guessed)


def _call(written: str, given: str | None) -> tuple[str | None, Arguments]:
    """Name and arguments of an action: of ``Search[x]``, of a name with its input beneath, or of plain words."""
    if given is not None:
        text = given.strip()
        return written, read_arguments(text if text.startswith("{") else {"input": text})
    if brackets := _BRACKETS.fullmatch(written):
        return brackets[1], Arguments("object", canonical_json({"input": brackets[2]}), written)
    if "[" in written:
        return None, Arguments("malformed", None, written)
    name, _, rest = written.partition(" ")
    return name, Arguments("object", canonical_json({"input": rest} if rest else {}), written)


def _command(written: str, observation: str | None) -> Row:
    """An action in ALFWorld: its verb, and what it is done to."""
    verb = "go to" if written.startswith("go to ") else re.split(r"[ :]", written, maxsplit=1)[0]
    rest = written[len(verb) :].lstrip(": ")
    arguments = Arguments("object", canonical_json({"input": rest} if rest else {}), written)
    failed = observation if observation == "Nothing happens." else None
    row = tool_call(verb, arguments, result=observation, error=failed, error_guessed=True if failed else None)
    return row | {"action_type": "env_action"}
