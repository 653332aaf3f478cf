"""Errors that are written for people: what happened, where, and what to do about it.

Pages show ``str(error)`` as it stands, so every message is a whole sentence and never a stack trace.
"""

from __future__ import annotations


class OffRLError(Exception):
    """Base of every error that the core raises on purpose."""


class UnknownName(OffRLError):
    """A registry was asked for a name that it doesn't hold."""

    def __init__(self, kind: str, name: str, known: object) -> None:
        """Say which names exist, so that a typing mistake mends itself."""
        names = ", ".join(map(str, known)) if hasattr(known, "__iter__") else str(known)
        super().__init__(f"There is no {kind} called {name!r}. Known: {names}.")


class InvalidConfig(OffRLError):
    """A parameter of an algorithm, a framing or a behavior policy is out of its range."""


class InvalidEdit(OffRLError):
    """A coverage edit can't be built, parsed or applied to this log."""


class InvalidPredicate(OffRLError):
    """A free SQL condition is not one plain expression over the columns of the steps."""


class TraceFormatError(OffRLError):
    """A whole file can't be read; single bad records are quarantined instead, in the import report."""


class UnknownFormat(TraceFormatError):
    """The records of a file have fields, but no known format fits them: a mapping of the fields can help."""


class EmptyDataset(OffRLError):
    """Nothing is left to learn from, after reading or after the coverage edits."""


class QueryRefused(OffRLError):
    """The SQL was not run: it is not one plain SELECT, or it doesn't parse."""


class QueryStopped(OffRLError):
    """The SQL was run and stopped: time, memory or size limit, or an error of the database."""


class NotPossible(OffRLError):
    """A judgement or a learner was asked for something this log or policy can't support."""


class RunMissing(OffRLError):
    """No run of that id is stored, or its files are damaged; training it again brings it back."""


class JobFailed(OffRLError):
    """A job ended without a model; the sentence says why."""


class JobCancelled(OffRLError):
    """A job was stopped before it had a model."""


class TooManyJobs(OffRLError):
    """Somebody has as many unfinished jobs as one may have."""
