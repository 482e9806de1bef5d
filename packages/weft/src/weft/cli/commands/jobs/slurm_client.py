"""`weft slurm-client`: submit one's own batch jobs to Slurm, as the service asks for them."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.connect.batch_client import only_one, serve_batch_jobs
from weft.cli.connect.client import ServiceClient
from weft.cli.view.errors import user_errors


def slurm_client(
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Leave when all your jobs have ended.")
    ] = False,
) -> None:
    """Submit the batch jobs of your Weft jobs to Slurm, as you, while it runs.

    For services that submit nothing themselves (`--engine slurm:submit_as=client`). `weft submit`
    and `weft run` start one in the background; run it yourself where background processes end when
    you log out, in tmux or as a user service.
    """
    with user_errors():
        client = ServiceClient()
        with only_one(client) as first:
            if not first:
                if not until_done:
                    typer.echo("a client of yours runs already")
                return
            try:
                serve_batch_jobs(client, typer.echo, until_done=until_done)
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
