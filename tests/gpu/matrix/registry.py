"""The jobs by name. A module of jobs registers each with @job; job.py runs them, processes.py says where."""

JOBS = {}


class Skip(Exception):
    """The job can't run here; the message says why."""


def job(function):
    """Registers a job: a function of a Run, whose first docstring line says what is special about it."""
    JOBS[function.__name__.replace("_", "-")] = function
    return function
