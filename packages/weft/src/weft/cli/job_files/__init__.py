"""Jobs from files and flags: ours, Slurm's and SkyPilot's."""
