"""Texts of a log and of visitors as they stand in SQL and in a link."""

from __future__ import annotations

from urllib.parse import quote


def sql_text(value: str) -> str:
    """A SQL text literal."""
    return "'" + value.replace("'", "''") + "'"


def link_token(kind: str, *values: object) -> str:
    """Values joined by colons, each escaped so that no colon, comma, plus sign or semicolon stays inside."""
    return ":".join([kind, *(quote(str(value), safe=" '=<>()") for value in values)])
