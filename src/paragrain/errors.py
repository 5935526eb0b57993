"""The errors that a user sees: one sentence that says what is wrong, where, and what to do."""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SOME_FAILED = 3


class ParagrainError(Exception):
    """Something that cannot go on as asked, told in one sentence; shown without a traceback."""

    exit_code = EXIT_FAILED


class UsageError(ParagrainError):
    """The request itself is wrong: an unknown name, a value out of range, options that conflict."""

    exit_code = EXIT_USAGE
