"""Qdrant's filter language (REST form) as the engine's filter objects; what the engine cannot do is refused by name."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import qdrant_edge as edge

MAX_FILTER_DEPTH = 16
_CLAUSES = ("must", "should", "must_not")
_RANGE_KEYS = frozenset({"gt", "gte", "lt", "lte"})


class WireError(Exception):
    """A request that is answered with an error; `status` is the HTTP status, the message goes into Qdrant's shape."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def bad_json(message: str) -> WireError:
    """Return the error for a body that is JSON but not a request (Qdrant: 400, "Format error in JSON body")."""
    return WireError(400, f"Format error in JSON body: {message}")


def invalid(message: str) -> WireError:
    """Return the error for a well-formed request with a forbidden value (Qdrant: 422, "Validation error")."""
    return WireError(422, f"Validation error in JSON body: {message}")


def unsupported(what: str) -> WireError:
    """Return the error for something that a Qdrant server does and this one does not."""
    return WireError(400, f"Wrong input: {what} is not served by the local vectors server; set QDRANT_URL to a server")


def known_fields(given: Mapping[str, Any], allowed: frozenset[str], what: str) -> None:
    """Refuse unknown fields: ignoring one would change a search or a delete without a word."""
    if unknown := sorted(set(given) - allowed):
        raise bad_json(f"{what}: unknown field `{unknown[0]}`")


def mapping(value: Any, what: str) -> dict[str, Any]:
    """Return the value when it is a JSON object, else raise a 400."""
    if not isinstance(value, dict):
        raise bad_json(f"{what} must be an object")
    return value


def point_id(value: Any) -> int | UUID:
    """Return an engine id of a JSON id: an unsigned 64-bit integer or a UUID string."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            pass
    shown = value if isinstance(value, int) else str(value)[:40]
    raise bad_json(f"value {shown} is not a valid point ID, valid values are either an unsigned integer or a UUID")


def point_ids(value: Any, what: str) -> list[int | UUID | str]:
    """Return the engine ids of a JSON list of ids."""
    if not isinstance(value, list):
        raise bad_json(f"{what} must be a list of point IDs")
    return [point_id(item) for item in value]


def parse_filter(value: Any, depth: int = 0) -> edge.Filter | None:
    """Return the engine's filter, None for a missing or empty one. Raises WireError(400) on anything else."""
    if value is None:
        return None
    given = mapping(value, "filter")
    known_fields(given, frozenset({*_CLAUSES, "min_should"}), "filter")
    if depth > MAX_FILTER_DEPTH:
        raise bad_json(f"filters are nested deeper than {MAX_FILTER_DEPTH}")
    clauses: dict[str, Any] = {
        clause: [_condition(item, depth) for item in (items if isinstance(items, list) else [items])]
        for clause in _CLAUSES
        if (items := given.get(clause)) is not None
    }
    minimum = given.get("min_should")
    if minimum is not None:
        chosen = mapping(minimum, "min_should")
        known_fields(chosen, frozenset({"conditions", "min_count"}), "min_should")
        if not isinstance(chosen.get("conditions"), list) or not isinstance(chosen.get("min_count"), int):
            raise bad_json("min_should needs `conditions` (a list) and `min_count` (an integer)")
        conditions = [_condition(item, depth) for item in chosen["conditions"]]
        return edge.Filter(**clauses, min_should=edge.MinShould(conditions, chosen["min_count"]))
    return edge.Filter(**clauses) if any(clauses.values()) else None


def _condition(value: Any, depth: int) -> Any:
    given = mapping(value, "a filter condition")
    if "key" in given:
        return _field(given)
    if "has_id" in given:
        known_fields(given, frozenset({"has_id"}), "has_id")
        return edge.HasIdCondition(set(point_ids(given["has_id"], "has_id")))
    if "has_vector" in given:
        known_fields(given, frozenset({"has_vector"}), "has_vector")
        return edge.HasVectorCondition(_text(given["has_vector"], "has_vector"))
    for name, made in (("is_empty", edge.IsEmptyCondition), ("is_null", edge.IsNullCondition)):
        if name in given:
            known_fields(given, frozenset({name}), name)
            return made(_text(mapping(given[name], name).get("key"), f"{name}.key"))
    if "nested" in given:
        raise unsupported("a nested filter")
    nested = parse_filter(given, depth + 1)
    if nested is None:
        raise bad_json("a filter condition is empty")
    return nested


def _field(given: dict[str, Any]) -> edge.FieldCondition:
    set_parts = {name for name, value in given.items() if value is not None} - {"key"}
    if refused := set_parts - {"match", "range"}:
        raise unsupported(f"the condition `{min(refused)}`")
    if not set_parts:
        raise bad_json("a field condition needs `match` or `range`")
    key = _text(given["key"], "key")
    try:
        return edge.FieldCondition(
            key=key,
            match=None if given.get("match") is None else _match(mapping(given["match"], "match")),
            range=None if given.get("range") is None else _range(mapping(given["range"], "range")),
        )
    except ValueError as error:  # the key is not a JSON path
        raise bad_json(str(error)) from error


def _match(given: dict[str, Any]) -> Any:
    if len(given) != 1:
        raise bad_json("match must have exactly one field")
    ((kind, value),) = given.items()
    if kind == "value":
        if not isinstance(value, (str, int)):
            raise bad_json("match.value must be a string, an integer or a boolean")
        return edge.MatchValue(value=value)
    if kind in ("any", "except"):
        same = isinstance(value, list) and (
            all(isinstance(item, str) for item in value)
            or all(isinstance(item, int) and not isinstance(item, bool) for item in value)
        )
        if not same:
            raise bad_json(f"match.{kind} must be a list of strings or a list of integers")
        return edge.MatchAny(any=value) if kind == "any" else edge.MatchExcept(value)
    if kind in ("text", "text_any", "phrase", "prefix", "substring"):
        raise unsupported(f"match.{kind}")
    raise bad_json(f"match: unknown field `{kind}`")


def _range(given: dict[str, Any]) -> edge.RangeFloat:
    known_fields(given, _RANGE_KEYS, "range")
    limits = {name: value for name, value in given.items() if value is not None}
    if any(isinstance(value, str) for value in limits.values()):
        raise unsupported("a range of dates")
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in limits.values()):
        raise bad_json("range limits must be numbers")
    return edge.RangeFloat(**{name: float(value) for name, value in limits.items()})


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise bad_json(f"{what} must be a string")
    return value
