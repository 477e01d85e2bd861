"""Model servers: catalog, client, admission."""
