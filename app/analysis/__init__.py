"""Long-context work that waits for the engine: analyses as jobs, and how their askers follow them."""
