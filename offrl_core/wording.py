"""Numbers with their nouns."""


def counted(n: int, noun: str) -> str:
    """For example "1 episode", "1,402 steps", "2 retries": the noun is given in the singular."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"
    return f"{n:,} {noun if n == 1 else many}"


def singular(nouns: str) -> str:
    """For example "retry" of "retries"."""
    return f"{nouns[:-3]}y" if nouns.endswith("ies") else nouns.removesuffix("s")
