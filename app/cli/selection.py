"""Which documents of a collection are meant by names, glob patterns and ids."""

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from app.cli.output import CommandError

if TYPE_CHECKING:
    from app.cli.client import Api

_WILD = frozenset("*?[")
_GUESSES = 3


def document_ids(api: "Api", collection: dict[str, Any], wanted: Sequence[str]) -> list[str]:
    """Ids of the documents that are meant, each once, in the order of `wanted`. Raises CommandError for an unknown one.

    An exact name or id goes before a pattern, so that `a[1].pdf` can be named; `*` in a pattern crosses folders.
    """
    if not wanted:
        return []
    documents = list(api.items(f"/collections/{collection['id']}/documents"))
    found: dict[str, None] = {}
    for name in wanted:
        meant = [d for d in documents if name in (d["name"], d["id"])]
        if not meant and _WILD & set(name):
            meant = [d for d in documents if fnmatchcase(d["name"], name)]
        if not meant:
            raise _unknown(name, str(collection["name"]), [str(d["name"]) for d in documents])
        found.update(dict.fromkeys(str(d["id"]) for d in meant))
    return list(found)


def _unknown(wanted: str, collection: str, names: Sequence[str]) -> CommandError:
    close = _close(wanted, names)
    if _WILD & set(wanted):
        detail = f"No document of {collection} matches '{wanted}'"
    else:
        detail = f"There is no document '{wanted}' in {collection}"
    hint = f"did you mean {' or '.join(close)}?" if close else f"see `fullread documents -c {collection}`."
    return CommandError("document_not_found", f"{detail}: {hint}")


def _close(wanted: str, names: Sequence[str]) -> list[str]:
    """Names that are the wanted one but for case or folders; else those that are nearly it."""
    folded: dict[str, list[str]] = {}
    for name in names:
        for key in {name.casefold(), name.casefold().rsplit("/", 1)[-1]}:
            folded.setdefault(key, []).append(name)
    same = folded.get(wanted.casefold())
    near = difflib.get_close_matches(wanted.casefold(), list(folded), n=_GUESSES, cutoff=0.7)
    meant = same or [name for key in near for name in folded[key]]
    return list(dict.fromkeys(meant))[:_GUESSES]
