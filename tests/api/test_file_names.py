"""Names of uploaded files are text: they never become a path, a header or a log line of ours."""

from collections.abc import Iterator
from urllib.parse import unquote
from uuid import uuid4

import httpx
import pytest

from app.identity.permissions import Role
from tests.support.doors import door
from tests.support.foreign import Person, add_person
from tests.support.planted import Planted, plant
from tests.support.stack import Stack


@pytest.fixture(scope="module")
def planted(stack: Stack) -> Planted:
    """A tenant with one object of each kind."""
    with door(stack, "fullread_owner") as connection:
        made = plant(connection, "names")
        connection.commit()
    return made


@pytest.fixture(scope="module")
def owner(stack: Stack, planted: Planted) -> Person:
    """Its owner."""
    return add_person(stack, planted.tenant, Role.OWNER)


@pytest.fixture(scope="module")
def own(stack: Stack, owner: Person) -> Iterator[httpx.Client]:
    """The owner's client."""
    with stack.client(owner.key) as client:
        yield client


def _upload(own: httpx.Client, planted: Planted, name: str, *, as_form: bool = True) -> httpx.Response:
    content = f"content {uuid4()}".encode()
    files = {"file": ("plain.txt" if as_form else name, content)}
    path = f"/api/v1/collections/{planted.collection}/documents"
    return own.post(path, files=files, data={"name": name} if as_form else {})


STORED = [
    ("../../etc/passwd", "../../etc/passwd"),
    ("..\\..\\windows\\system.ini", "../../windows/system.ini"),
    ("/etc/passwd", "etc/passwd"),
    ("C:\\temp\\a.txt", "C:/temp/a.txt"),
    ("\\\\server\\share\\a.txt", "server/share/a.txt"),
    ("a/../../b.txt", "a/../../b.txt"),
    ("..%2f..%2fetc", "..%2f..%2fetc"),
    ("\u2215etc\u2215passwd", "\u2215etc\u2215passwd"),
    ("\uff0fetc\uff0fpasswd", "\uff0fetc\uff0fpasswd"),
    ("invoice\u202efdp.exe", "invoice\u202efdp.exe"),
    ("a\u2028b\u2029c.txt", "a\u2028b\u2029c.txt"),
    ('quote";filename=evil.exe;x="', 'quote";filename=evil.exe;x="'),
    ("a%0d%0aset-cookie: x=1", "a%0d%0aset-cookie: x=1"),
    ("; rm -rf $HOME `id` $(id)", "; rm -rf $HOME `id` $(id)"),
    ("<img src=x onerror=alert(1)>.txt", "<img src=x onerror=alert(1)>.txt"),
    ("{{7*7}}{0.__class__}%s.txt", "{{7*7}}{0.__class__}%s.txt"),
    (".htaccess", ".htaccess"),
    ("CON", "CON"),
    ("nombre año façana 書類 😀.txt", "nombre año façana 書類 😀.txt"),
    (f"{'long' * 80}.txt", f"{'long' * 80}.txt"),
    ("x" * 1000, "x" * 1000),
]


@pytest.mark.parametrize(("name", "stored"), STORED, ids=range(len(STORED)))
def test_a_name_is_kept_as_text_and_comes_back_encoded(
    stack: Stack, own: httpx.Client, planted: Planted, name: str, stored: str
) -> None:
    answer = _upload(own, planted, name)
    assert answer.status_code == 202, answer.text
    document = answer.json()["document"]
    assert document["name"] == stored
    original = own.get(f"/api/v1/documents/{document['id']}/original")
    assert original.status_code == 200
    header = original.headers["content-disposition"]
    prefix = "attachment; filename*=UTF-8''"
    assert header.startswith(prefix)
    encoded = header.removeprefix(prefix)
    # RFC 8187: nothing but letters that need no quoting, and percent codes.
    assert all(c.isascii() and (c.isalnum() or c in "-._~%") for c in encoded), header
    assert unquote(encoded) == stored.rsplit("/", 1)[-1]
    assert "set-cookie" not in original.headers
    assert original.headers["content-type"] == "application/octet-stream"
    assert original.headers["x-content-type-options"] == "nosniff"
    assert original.headers["content-security-policy"] == "sandbox; default-src 'none'"


CONTROLS = ("a\r\nset-cookie: x=1", "a\nb", "\x1b[31mred\x1b[0m", "a\0b", "a\tb", "\x07", "a\x0bb")


@pytest.mark.parametrize("name", CONTROLS)
def test_a_name_with_control_characters_is_refused(own: httpx.Client, planted: Planted, name: str) -> None:
    answer = _upload(own, planted, name)
    assert answer.status_code == 422
    assert answer.json()["code"] == "bad_name"
    assert name.strip() not in answer.text


@pytest.mark.parametrize("name", ["", " ", "/", "\\", "//", "x" * 1001, "x" * 100_000])
def test_a_name_that_is_none_is_refused(own: httpx.Client, planted: Planted, name: str) -> None:
    answer = _upload(own, planted, name)
    # An empty form field counts as not sent: then the file's own name is taken.
    assert answer.status_code == (202 if name == "" else 422), answer.text
    assert name[:50] not in answer.text or len(name) < 3


def test_a_name_that_fits_in_no_index_is_refused_for_good(own: httpx.Client, planted: Planted) -> None:
    """A thousand characters of four bytes that do not compress: no 503, which clients would try again for ever."""
    answer = _upload(own, planted, "".join(chr(0x10000 + (n * 7919) % 60_000) for n in range(1000)))
    assert answer.status_code == 422, answer.text


def test_the_name_in_the_part_is_treated_alike(own: httpx.Client, planted: Planted) -> None:
    answer = _upload(own, planted, "../../part\u202e.txt", as_form=False)
    assert answer.json()["document"]["name"] == "../../part\u202e.txt"
    control = own.post(
        f"/api/v1/collections/{planted.collection}/documents",
        content=b'--b\r\ncontent-disposition: form-data; name="file"; filename="a\x1b[2Jb"\r\n\r\nx\r\n--b--\r\n',
        headers={"content-type": "multipart/form-data; boundary=b"},
    )
    assert control.status_code == 422, control.text


def test_names_of_collections_and_people_hold_no_control_characters(own: httpx.Client) -> None:
    for name in ("a\nb", "a\x1b[31m", "a\0", " ", "x" * 201):
        answer = own.post("/api/v1/collections", json={"name": name})
        assert answer.status_code == 422, repr(name)


def test_the_store_holds_digests_only(stack: Stack, own: httpx.Client, planted: Planted) -> None:
    assert _upload(own, planted, "../../../escaped.txt").status_code == 202
    files = [path for path in stack.home.blobs.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert len(path.name) == 64, path
        assert set(path.name) <= set("0123456789abcdef"), path
        assert path.parent.name == path.name[:2], path
    assert not list(stack.home.root.rglob("escaped*"))


def test_many_ranges_are_answered_fast(own: httpx.Client, planted: Planted) -> None:
    document = _upload(own, planted, "ranges.txt").json()["document"]["id"]
    ranges = ",".join(f"{n % 40}-{n % 40}" for n in range(10_000))
    answer = own.get(f"/api/v1/documents/{document}/original", headers={"range": f"bytes={ranges}"})
    assert answer.status_code in (200, 206, 400, 416, 431)
    assert answer.elapsed.total_seconds() < 2
    assert len(answer.content) < 10_000


def test_names_reach_no_log(stack: Stack, own: httpx.Client, planted: Planted) -> None:
    word = f"canary{uuid4().hex}"
    assert _upload(own, planted, f"{word}.txt").status_code == 202
    assert own.get(f"/api/v1/collections/{planted.collection}/documents", params={"name": word}).status_code == 200
    for path in stack.home.log.glob("*.log"):
        assert word not in path.read_text(errors="replace"), path.name
