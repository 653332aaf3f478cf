"""Tool calls that a model wrote as tags into the text of its reply, and the results that came back as text.

Two forms: ``<tool_call>`` around a JSON object (Hermes, Qwen; older sets have a Python literal), and
``<function=name><parameter=x>...</parameter></function>``, alone (OpenHands) or in ``<tool_call>`` (Qwen's coders).
Text that only talks of such tags is no call: a tag has to begin a line outside a code fence, every one that does has to
be a whole call, and the reply ends with the last of them, unless what follows is marked as a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from offrl_core.importers.chat_messages import calls_of
from offrl_core.importers.fields import Arguments, mapping, read_arguments
from offrl_core.importers.messages import Call, Message, Result, failure
from offrl_core.importers.records import parse_json
from offrl_core.importers.report import Place
from offrl_core.schema import canonical_json

_MARK = re.compile(r"<tool_call>|<function=|```+|~~~+")  # where a call or a code fence may begin
# No call holds another tag of its kind, so each character is looked at once.
_CALL = re.compile(
    r"""
    <tool_call> \s*+ (?P<json> \{ [^<]*+ (?: < (?! /? tool_call> ) [^<]*+ )*+ ) </tool_call>
    | (?P<wrap> <tool_call> \s*+ )? <function=(?P<name> [^<>\s]++ )>
      (?P<body> [^<]*+ (?: < (?! /function> | function= ) [^<]*+ )*+ ) </function>
      (?(wrap) \s*+ </tool_call> )
    """,
    re.VERBOSE,
)
_REST_OF_FENCE = re.compile(r"[^`\n]*+(?:\n|\Z)")  # its language; code with its end on the same line is no fence
_LINE_END = re.compile(r"[ \t\r]*+(?:\n|\Z)")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\s]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL)
_END = re.compile(r"(?:\s|<\|\w+\|>|</s>)*")  # a tokenizer may leave its sign for the end of a reply
_TAGS = ("<tool_call>", "<function=", "<tools>")
_CLOSING_TAGS = ("</tool_call>", "</function>")
_BEFORE_A_CALL = ("\n", "</think>", *_CLOSING_TAGS)
_RESPONSE = re.compile(r"<tool_response>([^<]*+(?:<(?!/tool_response>)[^<]*+)*+)</tool_response>")
_RESPONSE_BEGIN, _RESPONSE_END = re.compile(r"\s*+<tool_response>"), "</tool_response>"
_EXECUTION = re.compile(r"\s*EXECUTION RESULT of \[([^\]\n]+)\]:[ \t]*\n?(.*)", re.DOTALL)  # so OpenHands marks them


# -- calls ---------------------------------------------------------------------------------------------------


def written_calls(text: str, *, may_go_on: bool) -> tuple[str | None, list[Call]]:
    """The other words of a reply, and the calls that stand in it as tags; no calls where it only talks of them.

    Args:
        text: of the reply.
        may_go_on: whether words may follow the last call.
    """
    end = max(text.rfind(tag) + len(tag) if tag in text else 0 for tag in _CLOSING_TAGS)
    if not end or not (may_go_on or _END.fullmatch(text, end)):
        return None, []
    pieces = list(_pieces(text, end))
    calls = [call for piece in pieces if piece is not None and (call := _written_call(piece)) is not None]
    if not calls or len(calls) < len(pieces):
        return None, []
    words, position = [], 0
    for piece in filter(None, pieces):
        words.append(text[position : piece.start()])
        position = piece.end()
    words.append(_END.sub("", text[position:], count=1))
    return "".join(words).strip() or None, calls


def _pieces(text: str, end: int) -> Iterator[re.Match[str] | None]:
    """The tags that begin a line outside a code fence: each with the whole call that it opens, or None."""
    position, fence = 0, ""
    while mark := _MARK.search(text, position, end):
        position = mark.end()
        if not _begins_line(text, mark.start()):
            continue
        if fence:
            fence = "" if mark[0].startswith(fence) and _LINE_END.match(text, position) else fence
        elif mark[0][0] in "`~":
            fence = mark[0] if _REST_OF_FENCE.match(text, position) else ""
        else:
            piece = _CALL.match(text, mark.start(), end)
            yield piece
            position = piece.end() if piece else position


def _begins_line(text: str, at: int) -> bool:
    """Whether nothing but blanks, or the end of a thought or of another call, stands before a place in its line."""
    while at and text[at - 1] in " \t":
        at -= 1
    return at == 0 or text.endswith(_BEFORE_A_CALL, 0, at)


def _written_call(piece: re.Match[str]) -> Call | None:
    """One call; None where a tag opens none that is whole."""
    if piece["name"]:
        parameters = _parameters(piece["body"])
        if parameters is None:
            return None
        return Call(None, piece["name"], Arguments("object", canonical_json(parameters), piece["body"].strip() or None))
    whole = read_arguments(piece["json"] or "")
    given = mapping(parse_json(whole.text or "null")[0])
    (call,) = calls_of({"tool_calls": [given]})
    if call.name is None:
        return None
    if whole.status == "python_literal" and call.arguments.status == "object":
        return call._replace(arguments=call.arguments._replace(status="python_literal", raw=piece["json"].strip()))
    return call


def _parameters(body: str) -> dict[str, str] | None:
    """The parameters of a call by name, as text; None where something else stands between them, or a name twice."""
    found: dict[str, str] = {}
    position = 0
    while match := _PARAMETER.match(body, position):
        if match[1] in found:
            return None
        found[match[1]] = match[2]
        position = match.end()
    return None if body[position:].strip() else found


# -- results -------------------------------------------------------------------------------------------------


def written_results(text: str) -> tuple[list[Result], str | None]:
    """The results that a text marks as such, and its other words; no results where it begins with none."""
    if match := _EXECUTION.match(text):
        return [_result(match[2], match[1])], None
    if not _RESPONSE_BEGIN.match(text) or _RESPONSE_END not in text:
        return [], text
    inside, _, after = text.rpartition(_RESPONSE_END)
    inside += _RESPONSE_END
    rest = f"{_RESPONSE.sub('', inside)}{after}".strip()
    found = [response.strip() for response in _RESPONSE.findall(inside)]
    return [_result(one, _name_in(one)) for one in found], rest or None


def results_in(text: str) -> list[Result]:
    """The results in a text that is nothing else: those that it marks, or it as a whole."""
    found, rest = written_results(text)
    return found if found and not rest else [_result(text, None)]


def _name_in(text: str) -> str | None:
    """The tool that a result names, as those of Hermes do."""
    name = mapping(parse_json(text)[0]).get("name") if text.startswith("{") else None
    return name if isinstance(name, str) and name else None


def _result(text: str, name: str | None) -> Result:
    """What came back from one call; as text it has no id."""
    error, guessed = failure(text)
    return Result(None, text, error, guessed, name, ordered=True)


# -- conversations -------------------------------------------------------------------------------------------


def take_text_calls(messages: Sequence[Message], place: Place, *, has_tools: bool) -> None:
    """Make calls of those that stand in the text of replies, and results of what came back.

    A call is only believed where a marked result follows it, or where tools were offered and no call of the conversation
    stands beside a text. Then the user's next message is its result, if nothing in the conversation is marked as one.

    Args:
        messages: of one conversation; changed in place.
        place: gets a word on results that nothing marks.
        has_tools: whether the log gives the tools that the model was offered.
    """
    if not any(_closes_a_call(message) for message in messages):
        return
    offered = has_tools or any(tag in (m.text or "") for m in messages if m.role == "system" for tag in _TAGS)
    alone = offered and not any(message.calls for message in messages)
    any_marked = any(map(_is_marked, messages))
    n_guessed = 0
    for position, message in enumerate(messages):
        following = messages[position + 1] if position + 1 < len(messages) else None
        answered = following is not None and _is_marked(following)
        if not _closes_a_call(message) or not (alone or answered):
            continue
        words, calls = written_calls(message.text or "", may_go_on=answered)
        if calls:
            message.text, message.calls = words, calls
            message.metadata = (message.metadata or {}) | {"call_found_in_text": True}
            _take_results(messages[position + 1 :])
            if following is not None and following.role == "user" and not any_marked:
                following.role, following.results = "tool", results_in(following.text or "")
                n_guessed += 1
    if n_guessed:
        text = "calls stand in the text of replies, and nothing marks what came back: the user's next message was taken for it"
        place.mend(None, "result not marked", text)


def _closes_a_call(message: Message) -> bool:
    """Whether a reply without calls beside its text may have some in it."""
    text = message.text or ""
    return message.role == "assistant" and not message.calls and any(tag in text for tag in _CLOSING_TAGS)


def _is_marked(message: Message) -> bool:
    """Whether a message says that it is a result."""
    if message.role != "user" or not message.text:
        return message.role == "tool"
    marked = _RESPONSE_BEGIN.match(message.text) and _RESPONSE_END in message.text
    return bool(marked or _EXECUTION.match(message.text))


def _take_results(following: Sequence[Message]) -> None:
    """Open the results that follow a reply, up to the next one."""
    for message in following:
        if message.role == "assistant":
            return
        if message.role == "user":
            results, rest = written_results(message.text or "")
            if results:
                message.results, message.text = results, rest
        else:
            message.results = [one for result in message.results for one in _opened(result)]


def _opened(result: Result) -> list[Result]:
    """The results in the message of a tool: one, or those that its text marks."""
    found = results_in(result.text)
    if len(found) == 1 and found[0].text == result.text:
        return [result._replace(ordered=True)]
    return [one._replace(id=result.id, name=one.name or result.name) for one in found]
