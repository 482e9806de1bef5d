"""The processes of a job on this node: their command, environment, output and end."""
