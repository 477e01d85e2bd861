"""The audit trail: events in a hash chain per tenant."""
