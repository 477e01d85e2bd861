"""Makes the invented sample files of the demo, the same each time: `python samples/make.py`.

The contracts and laws beside them are real and lie in `files` as they are; `NOTICE` says where they come from.
"""

import re
import zipfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from io import BytesIO
from pathlib import Path

import docx
import openpyxl
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.text.paragraph import Paragraph
from PIL import Image, ImageDraw, ImageFont

FOLDER = Path(__file__).resolve().parent
_MADE = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)

AUTHOR, REVISED = "Ilse Marrow", "2026-01-12T10:30:00Z"
LICENCE_TITLE = "Map licence agreement (draft of 12 January 2026)"
#: Headings and paragraphs. [-deleted-] and [+inserted+] are tracked changes, not accepted yet.
LICENCE = (
    ("Parties",
     ("This Agreement is entered into on [-1 February-][+1 March+] 2026 between Alder & Finch Cartography LLC, Astoria,"
     " (the Licensor) and the Museum of Salt and Tides, Port Lligall, (the Licensee).")),
    ("Licence",
     ("The Licensor allows the Licensee to print the harbour charts named in Annex A in its catalogues and on its"
     " website, naming the cartographer.")),
    ("Fee",
     "The Licensee pays a licence fee of EUR [-52,000-][+48,600+] a year, in four equal instalments."),
    ("Liability",
     ("The Licensor's total liability under this Agreement shall not exceed EUR [-150,000-][+250,000+] in any contract"
     " year.")),
    ("Termination",
     ("Either party may terminate this Agreement by giving [-thirty (30)-][+sixty (60)+] days' written notice to the"
     " end of a calendar quarter.")),
    ("Assignment",
     "[-Each-][+Neither+] party may assign this Agreement without the written consent of the other party."),
    ("Governing law",
     "This Agreement shall be interpreted according to the laws of the State of [-Delaware-][+Oregon+]."),
)  # fmt: skip
_CHANGE = re.compile(r"\[(?P<sign>[-+])(?P<text>.+?)(?P=sign)\]")

INTENT = """\
# Letter of intent

## 1. Purpose

Alder & Finch Cartography LLC and the Museum of Salt and Tides intend to agree on a licence for the harbour charts.

## 2. No obligation

This letter binds nobody. Each side may end the talks at any time, without giving a reason and without compensation.

## 3. Governing law

This letter is not governed by the laws of any State.

Port Lligall, 5 January 2026
"""

PRICES = (
    ("Maps", (
        ("Article", "Size", "Price in EUR"),
        ("Harbour chart, linen", "60 x 90 cm", 185.00),
        ("Harbour chart, paper", "60 x 90 cm", 72.50),
        ("Tidal atlas, bound", "30 x 42 cm", 240.00),
        ("Relief model of the salt pans", "80 x 80 cm", 1_320.00),
    )),
    ("Services", (
        ("Service", "Unit", "Price in EUR"),
        ("Survey by boat", "day", 940.00),
        ("Colour restoration", "map", 310.00),
        ("Express delivery", "parcel", 28.00),
    )),
)  # fmt: skip

MAIL = """\
Dear colleagues,

the second set of maps leaves our workshop on 3 June 2026 with the carrier Tern Line, in two crates.
Crate one holds the harbour charts, crate two the relief model of the salt pans.
Please have somebody at the east gate: the driver cannot enter the courtyard.
The packing list is attached.

Kind regards
Ilse Marrow
Alder & Finch Cartography LLC
"""
PACKING_LIST = "crate;content;weight in kg\n1;harbour charts;48\n2;relief model of the salt pans;71\n"

SCAN = (
    ("ADDENDUM No. 1", 54),
    ("to the map licence agreement", 34),
    ("", 30),
    ("The Licensee may also print the tidal atlas,", 30),
    ("in one edition of not more than 500 copies.", 30),
    ("", 30),
    ("Port Lligall, 20 January 2026", 30),
    ("signed: I. Marrow        signed: the Registrar", 30),
)
_SCAN_SIZE, _SCAN_DPI, _SCAN_TILT = (827, 1169), 100, 0.6


def licence_docx() -> bytes:
    """The draft licence as a Word document with tracked changes."""
    document = docx.Document()
    properties = document.core_properties
    properties.title, properties.author, properties.language = LICENCE_TITLE, AUTHOR, "en"
    properties.created = properties.modified = _MADE.replace(tzinfo=None)
    document.add_heading(LICENCE_TITLE, level=1)
    for number, (heading, text) in enumerate(LICENCE, start=1):
        document.add_heading(f"{number}. {heading}", level=2)
        _add_changed(document.add_paragraph(), text)
    out = BytesIO()
    document.save(out)
    return _dated(out.getvalue())


def _add_changed(paragraph: Paragraph, text: str) -> None:
    """Runs of plain, deleted and inserted text."""
    at = 0
    for change in _CHANGE.finditer(text):
        paragraph.add_run(text[at : change.start()])
        at = change.end()
        run = paragraph.add_run(change["text"])._r  # noqa: SLF001 python-docx knows no tracked changes
        wrapper = OxmlElement("w:del" if change["sign"] == "-" else "w:ins")
        for name, value in (("w:id", str(change.start())), ("w:author", AUTHOR), ("w:date", REVISED)):
            wrapper.set(qn(name), value)
        run.addprevious(wrapper)
        wrapper.append(run)
        if change["sign"] == "-":
            for node in run.findall(qn("w:t")):
                node.tag = qn("w:delText")
    paragraph.add_run(text[at:])


def prices_xlsx() -> bytes:
    """The price list as a workbook of two sheets."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, rows in PRICES:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.properties.created = book.properties.modified = _MADE.replace(tzinfo=None)
    out = BytesIO()
    book.save(out)
    return _dated(out.getvalue(), modified=_MADE.strftime("%Y-%m-%dT%H:%M:%SZ"))


def _dated(archive: bytes, modified: str | None = None) -> bytes:
    """The same archive with one date on all members, so that two runs are equal."""
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(archive)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name in sorted(source.namelist(), key=lambda name: (name != "[Content_Types].xml", name)):
            body = source.read(name)
            if modified and name == "docProps/core.xml":
                body = re.sub(rb"(<dcterms:modified[^>]*>)[^<]*", rb"\g<1>" + modified.encode(), body)
            target.writestr(zipfile.ZipInfo(name, _MADE.timetuple()[:6]), body, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def delivery_eml() -> bytes:
    """The mail with its attachment."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = "Ilse Marrow <ilse.marrow@alder-finch.example>"
    mail["To"] = "Registrar <registrar@salt-and-tides.example>"
    mail["Date"] = "Tue, 10 Mar 2026 11:20:00 +0000"
    mail["Subject"] = "Delivery of the second set of maps"
    mail["Message-ID"] = "<20260310.1120@alder-finch.example>"
    mail.set_content(MAIL)
    mail.add_attachment(PACKING_LIST, subtype="csv", filename="packing-list.csv")
    mail.set_boundary("==part==")
    return mail.as_bytes()


def addendum_pdf() -> bytes:
    """The signed addendum as a scanner leaves it: one page that is a slightly tilted picture, and no text."""
    page = Image.new("L", _SCAN_SIZE, 255)
    draw = ImageDraw.Draw(page)
    top = 150
    for text, size in SCAN:
        draw.text((90, top), text, fill=0, font=ImageFont.load_default(size=size))
        top += int(size * 1.6)
    page = page.rotate(_SCAN_TILT, fillcolor=255, resample=Image.Resampling.BICUBIC)
    pixels = zlib.compress(page.point(lambda grey: 255 * (grey > 140)).convert("1").tobytes(), 9)
    width, height = (side * 72 / _SCAN_DPI for side in _SCAN_SIZE)
    picture = (
        b"<< /Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 1"
        b" /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (*_SCAN_SIZE, len(pixels), pixels)
    )
    drawn = b"q %.2f 0 0 %.2f 0 0 cm /Im1 Do Q" % (width, height)
    return _pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %.2f %.2f] /Contents 4 0 R"
        b" /Resources << /XObject << /Im1 5 0 R >> >> >>" % (width, height),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn),
        picture,
    )


def _pdf(*objects: bytes) -> bytes:
    """A PDF file of numbered objects, the first of which is the catalogue."""
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)


def made() -> Mapping[str, bytes]:
    """The files that this script makes, by name."""
    return {
        "contracts/letter-of-intent.md": INTENT.encode(),
        "contracts/map-licence-draft.docx": licence_docx(),
        "delivery-notice.eml": delivery_eml(),
        "price-list.xlsx": prices_xlsx(),
        "signed-addendum.pdf": addendum_pdf(),
    }


if __name__ == "__main__":
    for name, body in made().items():
        path = FOLDER / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
