"""``python -m tests.golden`` writes the golden file anew."""

from . import PATH, write

write()
print(f"wrote {PATH}")
