"""The jobs that the names in one request mean: each name is looked up once, however often it is."""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.model.job import AT_ONCE, After, JobId
from weft.service.access.tokens import Caller
from weft.service.budget.purse import request_purse
from weft.service.http.replies import HttpProblem
from weft.service.jobs.job_names import JobNames
from weft.service.requests.job_file import JobFile

HINT = "let them wait for one job without GPUs (`gpus: 0`) that waits for the others"
Key = tuple[tuple[str, ...], ...]


class AwaitedJobs:
    """Resolves the `after` of a request's jobs; those with the same names share one answer.

    So what a request costs grows as the names in it and as the jobs that it adds, not as both
    multiplied.
    """

    def __init__(self, names: JobNames, who: Caller) -> None:
        self._names, self._who = names, who
        self._purse = request_purse()
        self._known: dict[str, list[JobId]] = {}
        self._afters: dict[Key, After] = {}

    async def resolve_after(self, body: JobFile) -> After:
        """The jobs that a job is to run after, by id; HttpProblem for names of none or several."""
        asked = {"ok": body.after.ok, "any": body.after.any, "not_ok": body.after.not_ok}
        if not any(asked.values()):
            return AT_ONCE
        key = tuple(tuple(dict.fromkeys(names)) for names in asked.values())
        if key not in self._afters:
            jobs = {field: await self._jobs(field, names) for field, names in asked.items()}
            self._afters[key] = After(**jobs)
        return self._afters[key]

    async def _jobs(self, field: str, names: Sequence[str]) -> tuple[JobId, ...]:
        jobs: dict[JobId, None] = {}
        for name in dict.fromkeys(names):
            try:
                await self._purse.pause()
                if name not in self._known:
                    self._known[name] = self._names.find_all(name, self._who)
                known = self._known[name]
                self._purse.pay_rows(len(known), "these jobs would wait for", HINT)
            except HttpProblem as error:
                what = f"after.{field}: {error.what}"
                raise HttpProblem(422, what, error.hint, "after") from error
            jobs |= dict.fromkeys(known)
        return tuple(jobs)
