"""The service side of real jobs: driver, agents, warm workers."""
