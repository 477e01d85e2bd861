"""CSV files that hold no formula and lose nothing, and cursors that only whoever got one can use, as it is."""

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidInputError
from app.core.ids import new_id
from app.exports import csv_files, cursors
from app.exports.cursors import LONGEST_WALK, Walk
from app.identity.permissions import Principal, Role

KEY = b"k" * 32
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: What a spreadsheet runs, and the ways around a guard that only looks at the first letter.
FORMULAS = (
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\u00a0=1", "\u200b=1", "\ufeff=1", "\x0b=1",
    "\u3000=1", "＝1", "＋1", "－1", "＠A", "﹦1", "'=1", "''=1", "' =1", "\ttext", "\rtext", "\ntext",
    '=HYPERLINK("http://evil.example","x")', "=cmd|' /C calc'!A0",
)  # fmt: skip
PLAIN = ("", "text", "'t Hart", "1-2", "a=b", "me@there", "'", "  ", "\u00a7 7", "a\tb", "\u2212 not a minus sign")

#: As PostgreSQL holds it: no NUL, no lone surrogates.
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=60)
dangerous = st.tuples(st.sampled_from(FORMULAS), texts).map("".join)


def read(content: bytes) -> list[list[str]]:
    """The file as a program reads it."""
    return list(csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True))


def unguarded(cell: str) -> str:
    """What a careful reader does: an apostrophe before a dangerous text is ours."""
    return cell[1:] if csv_files.is_dangerous(cell) else cell


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_text(text: str) -> None:
    (cell,) = read(csv_files.document(["x"], [[text]]))[1]
    assert cell == f"'{text}"


@pytest.mark.parametrize("text", PLAIN)
def test_other_text_stays_as_it_is(text: str) -> None:
    (cell,) = read(csv_files.document(["x"], [[text]]))[1]
    assert cell == text


@given(st.lists(st.lists(st.one_of(texts, dangerous), min_size=3, max_size=3), max_size=4))
def test_every_text_comes_back(rows: list[list[str]]) -> None:
    found = read(csv_files.document(["a", "b", "c"], rows))
    assert found[0] == ["a", "b", "c"]
    assert [[unguarded(cell) for cell in row] for row in found[1:]] == rows
    for row in found[1:]:
        for cell in row:
            assert cell.lstrip()[:1] not in tuple("=+-@＝＋－＠")


def test_numbers_stay_numbers_and_null_is_no_empty_text() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
    row = [-1, -2.5, True, False, None, "", UUID(int=7), at, 'a "b", c\r\nd']
    line = csv_files.document(["x"], [row]).decode().removeprefix('"x"\r\n')
    assert line == (
        '-1,-2.5,true,false,,"",00000000-0000-0000-0000-000000000007,2026-01-02T03:04:05.678900Z,"a ""b"", c\r\nd"\r\n'
    )


def test_the_byte_order_mark_is_a_choice() -> None:
    plain, marked = (csv_files.document(["x"], [["é"]], bom=bom) for bom in (False, True))
    assert plain == b'"x"\r\n"\xc3\xa9"\r\n'
    assert marked == b"\xef\xbb\xbf" + plain


def caller(**changes: UUID) -> Principal:
    """A caller; a change makes it another one."""
    known = {"tenant_id": UUID(int=1), "user_id": UUID(int=2), **changes}
    return Principal(role=Role.VIEWER, email="x@test.example", **known)  # type: ignore[arg-type]


def walk(**changes: object) -> Walk:
    """A walk in its middle."""
    made = Walk("answers", as_of=AT, since=AT - timedelta(days=9), after=UUID(int=3))
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [walk(), walk(since=None), walk(after=None), walk(after=new_id())])
def test_a_walk_goes_on_where_it_was(made: Walk) -> None:
    cursor = cursors.seal(made, KEY, caller())
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert cursors.unseal(cursor, KEY, caller(), "answers", since=None, at=AT) == made
    assert cursors.unseal(cursor, KEY, caller(), "answers", since=made.since, at=AT) == made


def refused(cursor: str, *, who: Principal | None = None, dataset: str = "answers", **more: object) -> None:
    """Assert that a cursor does not lead on."""
    options = {"since": None, "at": AT, "key": KEY, **more}
    with pytest.raises(InvalidInputError) as error:
        cursors.unseal(cursor, options.pop("key"), who or caller(), dataset, **options)  # type: ignore[arg-type]
    assert error.value.code == "bad_cursor"


def test_a_cursor_leads_on_for_its_caller_and_walk_only() -> None:
    cursor = cursors.seal(walk(), KEY, caller())
    refused(cursor, dataset="citations")
    refused(cursor, who=caller(user_id=uuid4()))
    refused(cursor, who=caller(tenant_id=uuid4()))
    refused(cursor, key=b"l" * 32)
    refused(cursor, since=AT)
    refused(cursor, at=AT + LONGEST_WALK + timedelta(seconds=1))
    refused(cursors.seal(walk(since=None), KEY, caller()), since=AT)


def test_no_letter_of_a_cursor_can_be_changed() -> None:
    cursor = cursors.seal(walk(), KEY, caller())
    for place, letter in enumerate(cursor):
        refused(f"{cursor[:place]}{'B' if letter == 'A' else 'A'}{cursor[place + 1 :]}")
    for other in (cursor[:-1], f"{cursor}A", f"{cursor}=", f"{cursor}\n", f" {cursor}", f"{cursor}*", ""):
        refused(other)


@given(st.text(max_size=80))
def test_garbage_is_no_cursor(text: str) -> None:
    refused(text)
