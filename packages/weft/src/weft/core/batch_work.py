"""Batch jobs that persons submit under their own names: what an engine has for their clients.

On some clusters only its owner submits a job. Where the service may not become other users, a
process of each person (`weft slurm-client`) asks for what is to be submitted and ended, does it,
and reports. What it reports is checked with the cluster before it counts.
"""

from __future__ import annotations

from typing import Protocol

from weft.frozen import frozen

NO_CLIENT = "no client of its user took its batch job"  # of no machine's doing


@frozen
class BatchOffer:
    """A batch job to submit: `script` is for sbatch, `secret` names the offer in the report."""

    secret: str
    script: str


@frozen
class FoldersWanted:
    """Folders that a client is to make before it gets the batch job of the same `secret`."""

    secret: str
    folders: tuple[str, ...]


@frozen
class BatchWork:
    """Work for a client: folders to make, batch jobs to submit, and numbers of those to end."""

    make: tuple[FoldersWanted, ...] = ()
    submit: tuple[BatchOffer, ...] = ()
    cancel: tuple[str, ...] = ()


class BatchWorks(Protocol):
    """The work for each person's client; `account` is a tenant's name, or an account's."""

    def claim_work(self, account: str) -> BatchWork:
        """The work that is due now, each offer for one client.

        InvalidConfig for an unknown account.
        """
        ...

    async def report(self, account: str, secret: str, number: str, refusal: str) -> str:
        """A batch job was submitted as `number`, or refused; why that does not count, or empty."""
        ...
