"""What differs between two answers to the same question, causes before effects, in sentences for people. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from app.answering.runs import Counts, Outcome, Quoted, TallyCounts

#: Changed prompts and unread pages that are named one by one; the others are counted. One early document that changed
#: changes the prompts of all sections behind it.
NAMED_PROMPTS = 3
NAMED_UNREAD = 20

Json = Mapping[str, Any]

_HASH_CHARS = 12
# Characters of the answer's text that are shown from its first difference on, and before it.
_EXCERPT_CHARS = 160
_LEAD_CHARS = 30
# A section keeps its name when the number of sections changes.
_OF_ALL = re.compile(r"^(section \d+) of \d+$")
_MISSING = object()

_SCALARS = {"asked_route": "route asked for", "route": "route taken", "by_document": "asked document by document"}
_MODEL = {"id": "model", "digest": "digest of the model", "window_tokens": "window of the model, in tokens",
          "answer_form": "form of answers"}  # fmt: skip
_SNAPSHOT = {"sections": "sections of the corpus text", "tokens": "tokens of the corpus text",
             "digest": "digest of the corpus text"}  # fmt: skip
# Compared by a function of their own.
_PARTS = frozenset(("documents", "selection", "model", "embeddings", "settings", "snapshot", "prompts"))
_TALLY = {"yes": "documents that say yes", "no": "documents that say the opposite",
          "silent": "documents that are silent", "unproved": "documents without a proved verdict"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `what` reads by itself; `before` and `after` are None where there is nothing to set beside it."""

    what: str
    before: str | None = None
    after: str | None = None

    @property
    def sentence(self) -> str:
        """`pages read: 34 -> 36`."""
        values = [value for value in (self.before, self.after) if value is not None]
        return f"{self.what}: {' -> '.join(values)}" if values else self.what


def changes(before: Json, after: Json, *, outcomes: tuple[Outcome, Outcome] | None = None) -> tuple[Change, ...]:
    """What differs between two run records (as JSON) and, where given, between the outcomes of the two answers.

    Causes first, then prompts, then effects; empty when only times differ. Fields that one of the records lacks (an
    older format) are named in one change and not compared. The order of documents has no meaning, that of prompts has.
    """
    found: list[Change] = []
    if before and after:
        shared = before.keys() & after.keys()
        was, now = ({key: record[key] for key in shared} for record in (before, after))
        found += [*_causes(was, now), *_lacking(before, after), *_route(was, now), *_prompts(was, now)]
    elif before or after:
        side = "later" if before else "earlier"
        found.append(Change(f"the {side} answer has no run record, so only the outcomes are compared"))
    if outcomes is not None:
        found += _effects(*outcomes)
    return tuple(found)


def _causes(was: Json, now: Json) -> Iterator[Change]:
    yield from _hash("the question is another one", was, now, "question_sha256")
    yield from _documents(_by_id(was.get("documents")), _by_id(now.get("documents")))
    yield from _selection(was, now)
    yield from _value(_SCALARS["asked_route"], was, now, "asked_route")
    yield from _fields("model", _MODEL, _part(was, "model"), _part(now, "model"))
    yield from _fields("embeddings", {"model": "embedding model"}, _part(was, "embeddings"), _part(now, "embeddings"))
    yield from _fields("setting", {}, _part(was, "settings"), _part(now, "settings"))
    yield from _value("version of Fullread", was, now, "fullread")
    yield from _value("format of the run record", was, now, "format")
    told = {*_SCALARS, *_PARTS, "question_sha256", "fullread", "format"}
    for key in sorted(was.keys() - told):
        yield from _value(f"run record, {key}", was, now, key)


def _lacking(before: Json, after: Json) -> Iterator[Change]:
    for side, missing in (("earlier", after.keys() - before.keys()), ("later", before.keys() - after.keys())):
        if missing:
            names = ", ".join(sorted(missing))
            yield Change(f"not compared, because the {side} answer's record does not hold it", None, names)


def _route(was: Json, now: Json) -> Iterator[Change]:
    yield from _value(_SCALARS["route"], was, now, "route")
    yield from _value(_SCALARS["by_document"], was, now, "by_document")


def _documents(was: Mapping[str, Json], now: Mapping[str, Json]) -> Iterator[Change]:
    gone = {document_id: row for document_id, row in was.items() if document_id not in now}
    come = {document_id: row for document_id, row in now.items() if document_id not in was}
    same_name = {_name(row): document_id for document_id, row in come.items()}
    found: list[tuple[str, Change]] = []
    for row in gone.values():
        again = same_name.pop(_name(row), None)
        if again is None:
            found.append((_name(row), Change(f"document {_name(row)} was removed", _version(row))))
            continue
        versions = _apart(*_hashes(row, come.pop(again), "sha256"))
        what = f"document {_name(row)} was deleted and added again"
        if versions[0] == versions[1]:
            found.append((_name(row), Change(f"{what}, with the same bytes")))
        else:
            found.append((_name(row), Change(f"{what}, with other bytes", *(f"sha256 {v}" for v in versions))))
    found += [(_name(row), Change(f"document {_name(row)} was added", None, _version(row))) for row in come.values()]
    for document_id in was.keys() & now.keys():
        found += [(_name(now[document_id]), change) for change in _document(was[document_id], now[document_id])]
    yield from (change for _, change in sorted(found, key=lambda each: (each[0], each[1].what, each[1].sentence)))


def _document(was: Json, now: Json) -> Iterator[Change]:
    """The same document at two times."""
    name = f"document {_name(now)}"
    if not _same(was.get("name"), now.get("name")):
        yield Change("document was renamed", _name(was), _name(now))
    bytes_differ = not _same(was.get("sha256"), now.get("sha256"))
    number, before = now.get("version_number"), was.get("version_number")
    other_version = not _same(before, number) or not _same(was.get("version_id"), now.get("version_id"))
    if bytes_differ:
        newer = isinstance(number, int) and isinstance(before, int) and number > before
        kind = f"new version {number}" if newer else "another version" if other_version else "same version, other bytes"
        yield Change(f"{name}: {kind}", *(f"sha256 {value}" for value in _apart(*_hashes(was, now, "sha256"))))
    elif not _same(before, number):
        yield Change(f"{name}: another version with the same bytes", _say(before), _say(number))
    elif other_version:
        yield Change(
            f"{name}: the same bytes were stored anew", *map(_say, (was.get("version_id"), now.get("version_id")))
        )
    yield from _value(f"{name}: pages", was, now, "pages")
    for key in sorted((was.keys() | now.keys()) - {"id", "name", "sha256", "version_number", "version_id", "pages"}):
        yield from _value(f"{name}: {key}", was, now, key)


def _selection(was: Json, now: Json) -> Iterator[Change]:
    before, after = ({str(document_id) for document_id in _list(record.get("selection"))} for record in (was, now))
    names = {i: _name(row) for i, row in (*_by_id(was.get("documents")).items(), *_by_id(now.get("documents")).items())}
    if bool(before) != bool(after):
        sizes = (f"{len(ids)} of its documents" if ids else "the whole collection" for ids in (before, after))
        yield Change("selection", *sizes)
        return
    for what, ids in (("selection: no longer in it", before - after), ("selection: now in it", after - before)):
        if ids:
            yield Change(what, None, ", ".join(sorted(names.get(i, i) for i in ids)))


def _prompts(was: Json, now: Json) -> Iterator[Change]:
    """The corpus text and the requests made of it, in their order."""
    before, after = was.get("snapshot"), now.get("snapshot")
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _fields("corpus text", _SNAPSHOT, before, after)
    elif not _same(before, after):
        yield Change("corpus text of a full pass", _read_whole(before), _read_whole(after))
    old, new = _by_purpose(was.get("prompts")), _by_purpose(now.get("prompts"))
    both = [key for key in new if key in old]
    changed = [change for key in both for change in _prompt(old[key], new[key])]
    yield from _folded(changed, NAMED_PROMPTS, "prompts that changed")
    gone = [Change(f"prompt '{_purpose(row)}' is no longer made") for key, row in old.items() if key not in new]
    yield from _folded(gone, NAMED_PROMPTS, "prompts that are no longer made")
    come = [Change(f"prompt '{_purpose(row)}' is new") for key, row in new.items() if key not in old]
    yield from _folded(come, NAMED_PROMPTS, "prompts that are new")
    renamed = [(_purpose(old[key]), _purpose(new[key])) for key in both if _purpose(old[key]) != _purpose(new[key])]
    if renamed:
        yield Change(f"{_count(len(renamed), 'prompt')} named anew, the first one", *renamed[0])
    if [key for key in old if key in new] != both:
        yield Change("the prompts were made in another order")


def _prompt(was: Json, now: Json) -> Iterator[Change]:
    name = f"prompt '{_purpose(now)}'"
    same_text, same_count = (_same(was.get(key), now.get(key)) for key in ("sha256", "tokens"))
    if not same_count:
        what = f"{name} is the same text and counts otherwise" if same_text else f"{name} changed"
        yield Change(what, *(f"{_say(row.get('tokens'))} tokens" for row in (was, now)))
    elif not same_text:
        yield Change(
            f"{name} changed, with as many tokens", *(f"sha256 {v}" for v in _apart(*_hashes(was, now, "sha256")))
        )
    for key in sorted((was.keys() | now.keys()) - {"purpose", "sha256", "tokens"}):
        yield from _value(f"{name}: {key}", was, now, key)


def _effects(was: Outcome, now: Outcome) -> Iterator[Change]:
    if was.state != now.state:
        yield Change("state", was.state, now.state)
    for field in fields(Counts):
        numbers = getattr(was.coverage, field.name), getattr(now.coverage, field.name)
        if numbers[0] != numbers[1]:
            yield Change(f"coverage, {field.name.replace('_', ' ')}", *(f"{number:,}" for number in numbers))
    yield from _unread(was, now)
    yield from _tally(was.tally, now.tally)
    yield from _verdicts(was, now)
    yield from _quotes(Counter(was.citations), Counter(now.citations))
    if was.text != now.text:
        yield Change("wording of the answer", *_first_difference(was.text, now.text))


def _unread(was: Outcome, now: Outcome) -> Iterator[Change]:
    before, after = ({(e.document, e.reason): e.pages for e in outcome.unread} for outcome in (was, now))
    found: list[Change] = []
    for key in sorted(before.keys() | after.keys()):
        what = f"not read in {key[0]} ({key[1].replace('_', ' ')})"
        values = [_pages(side[key]) if key in side else "nothing" for side in (before, after)]
        if values[0] != values[1]:
            found.append(Change(what, *values))
    yield from _folded(found, NAMED_UNREAD, "changes in what was not read")


def _tally(was: TallyCounts | None, now: TallyCounts | None) -> Iterator[Change]:
    for name, label in _TALLY.items():
        values = ["not counted" if side is None else f"{getattr(side, name):,}" for side in (was, now)]
        if values[0] != values[1]:
            yield Change(label, *values)


def _verdicts(was: Outcome, now: Outcome) -> Iterator[Change]:
    before, after = ({v.document_id or v.document: v for v in outcome.verdicts} for outcome in (was, now))
    for key in sorted(before.keys() | after.keys(), key=lambda i: ((after.get(i) or before[i]).document, i)):
        values = [
            "none" if v is None else _verdict(v.verdict, proved=v.proved) for v in (before.get(key), after.get(key))
        ]
        if values[0] != values[1]:
            yield Change(f"verdict on {(after.get(key) or before[key]).document}", *values)


def _quotes(was: Counter[Quoted], now: Counter[Quoted]) -> Iterator[Change]:
    """Quotes in any order; the same words on another page, or with another outcome of the check, are one change."""
    gone, come = list((was - now).elements()), list((now - was).elements())
    for quote in list(gone):
        again = next((q for q in come if (q.document, q.quote) == (quote.document, quote.quote)), None)
        if again is not None:
            gone.remove(quote)
            come.remove(again)
            yield Change(f"quote “{_flat(quote.quote)}” in {quote.document}", _proof(quote), _proof(again))
    for quote in gone:
        yield Change("quote no longer given", f"“{_flat(quote.quote)}” ({quote.document}, {_proof(quote)})")
    for quote in come:
        yield Change("new quote", None, f"“{_flat(quote.quote)}” ({quote.document}, {_proof(quote)})")


def _part(record: Json, key: str) -> Json:
    part = record.get(key)
    return part if isinstance(part, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else []


def _rows(value: object) -> Sequence[Json]:
    return [row for row in _list(value) if isinstance(row, Mapping)]


def _by_id(value: object) -> dict[str, Json]:
    return {str(row.get("id")): row for row in _rows(value)}


def _by_purpose(value: object) -> dict[tuple[str, int], Json]:
    """Prompts by purpose and, among those of one purpose, by their number; in order."""
    seen: Counter[str] = Counter()
    found: dict[tuple[str, int], Json] = {}
    for row in _rows(value):
        purpose = _OF_ALL.sub(r"\1", _purpose(row))
        found[purpose, seen[purpose]] = row
        seen[purpose] += 1
    return found


def _fields(kind: str, labels: Mapping[str, str], was: Json, now: Json) -> Iterator[Change]:
    known = [key for key in labels if key in was or key in now]
    for key in (*known, *sorted((was.keys() | now.keys()) - labels.keys())):
        label = labels.get(key, f"{kind} {key}")
        if "digest" in key:
            yield from _hash(label, was, now, key)
        else:
            yield from _value(label, was, now, key)


def _value(what: str, was: Json, now: Json, key: str) -> Iterator[Change]:
    before, after = was.get(key, _MISSING), now.get(key, _MISSING)
    if not _same(before, after):
        yield Change(what, _say(before), _say(after))


def _hash(what: str, was: Json, now: Json, key: str) -> Iterator[Change]:
    before, after = was.get(key, _MISSING), now.get(key, _MISSING)
    if not _same(before, after):
        yield Change(what, *_apart(_say(before), _say(after)))


def _hashes(was: Json, now: Json, key: str) -> tuple[str, str]:
    return _say(was.get(key, _MISSING)), _say(now.get(key, _MISSING))


def _apart(before: str, after: str) -> tuple[str, str]:
    """Two hashes as short as they still differ."""
    short = before[:_HASH_CHARS], after[:_HASH_CHARS]
    return short if short[0] != short[1] else (before, after)


def _same(before: object, after: object) -> bool:
    """Equal as JSON: true is not 1."""
    return before == after and isinstance(before, bool) == isinstance(after, bool)


def _say(value: object) -> str:
    if value is _MISSING:
        return "not recorded"
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _read_whole(snapshot: object) -> str:
    if not isinstance(snapshot, Mapping):
        return "none" if snapshot is None else str(snapshot)
    return f"{_say(snapshot.get('tokens'))} tokens in {_say(snapshot.get('sections'))} sections"


def _name(row: Json) -> str:
    return str(row.get("name", row.get("id")))


def _version(row: Json) -> str:
    digest = _say(row.get("sha256", _MISSING))[:_HASH_CHARS]
    return f"version {_say(row.get('version_number', _MISSING))}, sha256 {digest}"


def _purpose(row: Json) -> str:
    return str(row.get("purpose", "unnamed"))


def _verdict(verdict: str, *, proved: bool) -> str:
    return verdict if proved or verdict == "silent" else f"{verdict}, not proved"


def _proof(quote: Quoted) -> str:
    where = "no page" if quote.page is None else f"page {quote.page}"
    return f"{where}, {'verified' if quote.verified else 'not verified'}"


def _pages(pages: int | None) -> str:
    return "an unknown number of pages" if pages is None else _count(pages, "page")


def _flat(text: str) -> str:
    return " ".join(text.split())


def _first_difference(before: str, after: str) -> tuple[str, str]:
    """Both texts from a little before their first difference on."""
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    start = max(0, at - _LEAD_CHARS)
    shown = []
    for text in (before, after):
        cut = text[start : start + _EXCERPT_CHARS]
        shown.append(f"{'…' if start else ''}{cut}{'…' if start + _EXCERPT_CHARS < len(text) else ''}" or "nothing")
    return shown[0], shown[1]


def _folded(found: Sequence[Change], named: int, others: str) -> Iterable[Change]:
    """The first few, and how many more there are."""
    rest = len(found) - named
    return found if rest <= 0 else [*found[:named], Change(f"more {others}", None, f"{rest:,}")]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
