"""The local stack: starts, watches and stops the servers that no configured URL provides. Only this package knows
that they are local; the product reaches them by URL as it reaches production servers."""
