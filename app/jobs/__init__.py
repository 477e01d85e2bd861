"""The job state machine: rows, claims with fences, leases, outbox, sweep."""
