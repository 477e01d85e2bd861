"""HTTP only: routes, schemas, problem documents."""
