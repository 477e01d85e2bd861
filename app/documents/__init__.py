"""Collections, documents, versions, pages, chunks; who may see them; upload, ingest, delete."""
