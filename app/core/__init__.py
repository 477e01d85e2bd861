"""Errors, database scopes, blobs and observability: what every layer above stands on."""
