"""Numbers with their nouns."""


def counted(n: int, noun: str) -> str:
    """For example "1 episode", "1,402 steps", "2 retries": the noun is given in the singular."""
    return f"{n:,} {noun if n == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """For example "retries" of "retry", "batches" of "batch"."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def singular(nouns: str) -> str:
    """For example "retry" of "retries", "batch" of "batches"."""
    if nouns.endswith("ies"):
        return f"{nouns[:-3]}y"
    return nouns.removesuffix("es" if nouns.endswith("ches") else "s")


def in_words(seconds: float) -> str:
    """A time to wait, to two digits or so.

    >>> [in_words(seconds) for seconds in (4.2, 150, 3600, 35_439)]
    ['4 s', '2 min 30 s', '1 h', '9 h 50 min']
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    (large, small), names = (
        (divmod(whole, 60), ("min", "s")) if whole < 3600 else (divmod(whole // 60, 60), ("h", "min"))
    )
    return f"{large} {names[0]}" + (f" {small} {names[1]}" if small else "")
