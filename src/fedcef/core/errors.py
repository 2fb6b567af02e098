"""Errors that a user can cause or must hear of: one sentence saying what is wrong and what to do.

The command line prints the sentence and leaves with `exit_code`; no traceback.
"""


class FedcefError(Exception):
    """Anything that is told in one sentence; `exit_code` is what the command line leaves with."""

    exit_code = 2


class ConfigError(FedcefError):
    """A setting is unknown, out of range or does not fit another one."""


class DataError(FedcefError):
    """A data set is missing, incomplete or not what it should be."""


class ProblemError(FedcefError):
    """A model or a client's data cannot be trained as given."""


class DataNote(UserWarning):
    """Data were used in another form than the one in which they were handed in."""


class RunError(FedcefError):
    """A run folder cannot be written, read or continued."""


class EndedElsewhere(RunError):
    """Another process of the run has failed; it says why, so that this one need not."""

    def __init__(self, sentence: str, rank: int) -> None:
        super().__init__(sentence)
        self.rank = rank
        """Whose failure it was."""


class DivergedError(FedcefError):
    """The iterates stopped being finite numbers."""

    exit_code = 3
