"""Files -> pages -> elements -> chunks -> vectors. Knows no tenants, tables or HTTP routes."""
