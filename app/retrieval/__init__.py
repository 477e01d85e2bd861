"""Hybrid search: the index proposes, Postgres decides."""
