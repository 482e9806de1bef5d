"""Why a job waits, when it will start, and what another policy would have done."""
