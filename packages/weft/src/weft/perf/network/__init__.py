"""Jobs on shared network links: how fast they get on, with and without time shifts."""
