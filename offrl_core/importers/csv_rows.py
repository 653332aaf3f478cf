"""CSV text to records: one object per row, its cells as text, an empty cell as None.

Separators are the comma, semicolon, tab and bar. European files write numbers with a decimal comma and separate cells
by something else; their numbers get a point, as every reader of numbers expects one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport

_SEPARATORS = ",;\t|"
_ROWS_LOOKED_AT = 200
_LONGEST_NAME = 80
_LONGEST_CELL = 2**24  # characters; Python's own limit is far below what results of tools have
_MOST_LINES_OF_A_ROW = 1000  # a quote that never closes must not swallow the rest of the file
_PROGRESS_EVERY = 256  # rows

_SEPARATOR_LINE = re.compile(r"sep=[,;\t|]\s*\n")  # Excel's own first line
_COLUMN_NAME = re.compile(r"[^\W\d][\w .:/()%#@\[\]-]*")
_BEGINS_LIKE_NUMBER = re.compile(r"[+-]?\.?\d")
_PLAIN_NAME = re.compile(r"[^\W\d][\w.-]*")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_BOOLEANS = frozenset({"true", "false", "yes", "no"})


@dataclass(frozen=True, slots=True)
class _Table:
    """How a CSV text is laid out: separator, names of the columns, and where the first row begins."""

    separator: str
    names: tuple[str, ...]
    start: int  # position in the text
    line: int  # number of the line there
    comma_is_point: bool


def looks_like_csv(text: str) -> bool:
    r"""Whether a text is a table with a line of column names, and not prose, a log or JSON.

    >>> looks_like_csv("episode,step,action\n0,0,left\n0,1,right")
    True
    >>> looks_like_csv("Well, that is that.\nSo, they went home.")
    False
    """
    return _layout(text) is not None


def csv_rows(name: str, text: str, report: ImportReport, tick: Callable[[float], None]) -> Iterator[Record]:
    """Read the rows of a table; one that doesn't fit the columns costs that row only.

    Args:
        name: what to call the file.
        text: what ``looks_like_csv`` accepted.
        report: gets the problems, the number of rows and a note on decimal commas.
        tick: called with the fraction read so far, 0 to 1.
    """
    table = _layout(text)
    if table is None:
        return
    if table.comma_is_point:
        report.notes.append(f"{name} writes numbers with a decimal comma; 0,5 was read as 0.5.")
    for number, raw, cells, end in _rows(text, table):
        if tuple(cells) == table.names:
            continue  # files put one behind the other repeat their first line
        report.accounts.found[name] += 1
        if not report.accounts.found[name] % _PROGRESS_EVERY:
            tick(end / len(text))
        while len(cells) > len(table.names) and not cells[-1].strip():
            cells.pop()
        if len(cells) != len(table.names):
            message = f"this row has {len(cells)} cells, but there are {len(table.names)} columns; it was set aside"
            report.at(name, number).lose(None, "wrong number of cells", message, raw)
            continue
        values = [_cell(cell, table.comma_is_point) for cell in cells]
        yield Record(number, dict(zip(table.names, values, strict=True)), raw, name)


def _cell(text: str, comma_is_point: bool) -> str | None:
    """The text of a cell, None where it is empty."""
    text = text.strip()
    if comma_is_point and _COMMA_NUMBER.fullmatch(text):
        return text.replace(",", ".")
    return text or None


# -- rows ----------------------------------------------------------------------------------------------------


def _rows(text: str, table: _Table) -> Iterator[tuple[int, str, list[str], int]]:
    """Rows from the first one on: (number of the first line, raw text, cells, end)."""
    position, line = table.start, table.line
    while position < len(text):
        end = _line_end(text, position)
        n_lines = 1
        if _is_open(text[position:end], table.separator):
            end, n_lines = _closing_line(text, position, table.separator)
        raw = text[position:end].strip("\r\n")
        if raw.strip():
            yield line, raw, _split(raw, table.separator), end
        position, line = end + 1, line + n_lines


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _closing_line(text: str, start: int, separator: str) -> tuple[int, int]:
    """End of the row whose first line leaves a quoted cell open, and its lines; of that line if it never closes."""
    first = end = _line_end(text, start)
    for n_lines in range(2, _MOST_LINES_OF_A_ROW):
        if end >= len(text):
            break
        begin, end = end + 1, _line_end(text, end + 1)
        if '"' in text[begin:end] and not _is_open(text[start:end], separator):
            return end, n_lines
    return first, 1


def _is_open(row: str, separator: str) -> bool:
    """Whether a row ends inside a quoted cell."""
    if row.count('"') % 2 == 0:
        return False
    try:
        next(csv.reader([row], delimiter=separator, strict=True), None)
    except csv.Error as error:
        return "unexpected end" in str(error)
    return False


def _split(row: str, separator: str) -> list[str]:
    """Cells of one row, which may span lines; a row that can't be split is one cell."""
    if '"' not in row:
        return row.split(separator)
    csv.field_size_limit(_LONGEST_CELL)
    try:
        return next(csv.reader(row.splitlines(keepends=True), delimiter=separator, skipinitialspace=True))
    except (csv.Error, StopIteration):
        return [row]


# -- recognising ---------------------------------------------------------------------------------------------


def _layout(text: str) -> _Table | None:
    """The layout of a table; None where the text is something else."""
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return None
    start = len(text) - len(text.lstrip("\ufeff\r\n"))
    excel = _SEPARATOR_LINE.match(text, start)
    start = excel.end() if excel else start
    tables = [table for separator in _SEPARATORS if (table := _table(text, start, separator))]
    return max(tables, key=lambda table: len(table.names), default=None)


def _table(text: str, start: int, separator: str) -> _Table | None:
    """The layout with this separator, if the first line names columns and the rows after it fill them."""
    end = _line_end(text, start)
    titles = _split(text[start:end].strip("\r"), separator)
    header = [cell.strip() for cell in titles]
    if not _are_names(header):
        return None
    names = tuple(name or f"Unnamed: {i}" for i, name in enumerate(header))
    table = _Table(separator, names, end + 1, text.count("\n", 0, start) + 2, False)
    head = []
    for _, _, cells, _ in _rows(text, table):
        head.append(cells)
        if len(head) == _ROWS_LOOKED_AT:
            break
    rows = [[cell.strip() for cell in cells] for cells in head if len(cells) == len(names)]
    close = len(rows) == len(head) and not any(cell[:1].isspace() for cells in [titles, *head] for cell in cells)
    if not rows or len(rows) < 0.8 * len(head) or not _are_values(header, rows, close):
        return None
    if _are_odd(header) and not 2 <= len(rows) == len(head):
        return None
    return _Table(separator, names, table.start, table.line, separator != "," and _has_decimal_commas(rows))


def _are_names(header: Sequence[str]) -> bool:
    """Whether cells may name columns: at least two, all different, short, none beginning with a digit, one like a name.

    One may be empty, the index that pandas writes; a table drawn with bars begins and ends with empty ones.
    """
    named = [name for name in header if name]
    return (
        len(header) >= 2
        and len(header) - len(named) <= 1
        and len(set(named)) == len(named)
        and any(_COLUMN_NAME.fullmatch(name) for name in named)
        and all(len(name) <= _LONGEST_NAME and not _BEGINS_LIKE_NUMBER.match(name) for name in named)
        and all(len(name.split()) <= 4 for name in named)
    )


def _are_odd(header: Sequence[str]) -> bool:
    """Whether some name has signs that names seldom have, such as HTML: then the rows must leave no doubt."""
    return not all(_COLUMN_NAME.fullmatch(name) for name in header if name)


def _are_values(header: Sequence[str], rows: Sequence[Sequence[str]], close: bool) -> bool:
    """Whether rows hold values of the named columns: the names don't come again, and something is a number or a flag.

    Columns of text alone pass where the names are those of a program: in prose, commas separate phrases. Two such names may
    stand in prose as well; there a blank follows the comma, while these stand ``close`` and all rows are complete.
    """
    columns = list(zip(*rows, strict=True))
    repeated = sum(bool(name) and name in column for name, column in zip(header, columns, strict=True))
    if 2 * repeated > len(header) and rows.count(list(header)) == 0:
        return False
    plain = (len(header) >= 3 or close) and all(_PLAIN_NAME.fullmatch(name) for name in header if name)
    return plain or any(_is_measured(column) for column in columns)


def _is_measured(column: Sequence[str]) -> bool:
    """Whether the cells of a column that aren't empty are mostly numbers or truth values."""
    cells = [cell for cell in column if cell]
    good = sum(bool(_NUMBER.fullmatch(cell) or _COMMA_NUMBER.fullmatch(cell)) for cell in cells)
    good += sum(cell.lower() in _BOOLEANS for cell in cells)
    return bool(cells) and good >= 0.8 * len(cells)


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a comma stands for the decimal point: some number proves it (1,234 doesn't), and none has a point."""
    cells = [cell for row in rows for cell in row if "," in cell or "." in cell]
    proofs = any(_COMMA_NUMBER.fullmatch(cell) and not _THOUSANDS.fullmatch(cell) for cell in cells)
    return proofs and not any(_NUMBER.fullmatch(cell) for cell in cells)
