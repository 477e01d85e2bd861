"""Makes the small files of tests/data/files: `python tests/data/make_files.py`. The outputs are committed.

PDFs are written by hand, so that every coordinate in them is known to the tests.
"""

import io
import zipfile
import zlib
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path

import docx
import msoffcrypto.format.ooxml
import openpyxl
from lxml import etree
from PIL import Image, ImageDraw
from pypdf import PdfReader, PdfWriter

FOLDER = Path(__file__).parent / "files"
PASSWORD = "open sesame"
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"

AGREEMENT = [
    [
        (72, 720, 18, "Service Agreement"),
        (72, 680, 14, "1. Fees"),
        (72, 655, 11, "The client pays a yearly fee of EUR 5,120 for the services described in Annex A."),
        (72, 641, 11, "Invoices are due within thirty days. Late payment bears interest of 4.5 % a year."),
        (72, 610, 14, "2. Term"),
        (72, 585, 11, "This agreement starts on 1 March 2024 and ends on 28 February 2027. Early termi-"),
        (72, 571, 11, "nation needs a written notice of ninety days. If neither party gives notice, the agreement"),
        (72, 40, 9, "Page 1 of 3"),
    ],
    [
        (72, 720, 11, "is renewed for one more year under the same conditions."),
        (72, 680, 14, "3. Liability"),
        (72, 655, 11, "The supplier is liable up to EUR 250,000 in total, except in the case of gross negligence."),
        (72, 600, 11, "Year"), (200, 600, 11, "Hours"), (330, 600, 11, "Amount"),
        (72, 584, 11, "2024"), (200, 584, 11, "310"), (330, 584, 11, "37,200"),
        (72, 568, 11, "2025"), (200, 568, 11, "280"), (330, 568, 11, "33,600"),
        (72, 40, 9, "Page 2 of 3"),
    ],
    [
        (72, 720, 14, "4. Governing law"),
        (72, 695, 11, "Andorran law governs this agreement. The courts of Andorra la Vella have jurisdiction."),
        (72, 40, 9, "Page 3 of 3"),
    ],
]  # fmt: skip

Words = list[tuple[float, float, float, str]]


@dataclass
class Page:
    """A page to write: words at (x, y, size), or an image over the whole page."""

    words: Words = field(default_factory=list)
    media: tuple[float, float, float, float] = (0, 0, 612, 792)
    crop: tuple[float, float, float, float] | None = None
    rotate: int = 0
    image: Image.Image | None = None
    annotations: list[str] = field(default_factory=list)


def write_pdf(pages: list[Page], *, fields: list[str] | None = None, trailer: str = "", lead: bytes = b"") -> bytes:
    """A PDF 1.4 file with one font (Helvetica). `fields` are the names of annotation objects that are form fields."""
    objects: list[bytes] = [
        b"",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]

    def add(body: bytes) -> int:
        objects.append(body)
        return len(objects)

    kids: list[int] = []
    field_ids: list[int] = []
    for page in pages:
        resources = "/Font << /F1 3 0 R >>"
        parts = [f"BT /F1 {size} Tf {x} {y} Td ({_escaped(text)}) Tj ET" for x, y, size, text in page.words]
        if page.image is not None:
            gray = page.image.convert("L")
            data = zlib.compress(gray.tobytes())
            head = (
                f"<< /Type /XObject /Subtype /Image /Width {gray.width} /Height {gray.height} /ColorSpace /DeviceGray "
                f"/BitsPerComponent 8 /Filter /FlateDecode /Length {len(data)} >>\nstream\n"
            )
            image_id = add(head.encode() + data + b"\nendstream")
            resources += f" /XObject << /Im1 {image_id} 0 R >>"
            parts.append(f"q {page.media[2]} 0 0 {page.media[3]} 0 0 cm /Im1 Do Q")
        content = "\n".join(parts).encode("cp1252")
        content_id = add(b"<< /Length %d >>\nstream\n" % len(content) + content + b"\nendstream")
        notes = [add(note.encode()) for note in page.annotations]
        field_ids += [number for number, note in zip(notes, page.annotations, strict=True) if "/Widget" in note]
        extra = f" /CropBox [{' '.join(map(str, page.crop))}]" if page.crop else ""
        extra += f" /Rotate {page.rotate}" if page.rotate else ""
        extra += f" /Annots [{' '.join(f'{number} 0 R' for number in notes)}]" if notes else ""
        media = " ".join(map(str, page.media))
        kids.append(
            add(
                f"<< /Type /Page /Parent 2 0 R /MediaBox [{media}]{extra} /Resources << {resources} >> "
                f"/Contents {content_id} 0 R >>".encode()
            )
        )
    names = " ".join(f"{number} 0 R" for number in field_ids)
    form = f" /AcroForm << /Fields [{names}] /DR << /Font << /F1 3 0 R >> >> >>"
    objects[0] = f"<< /Type /Catalog /Pages 2 0 R{form if fields else ''} >>".encode()
    objects[1] = f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] >>".encode()
    info = add(b"<< /Title (Service Agreement) /Author (Legal) /CreationDate (D:20240301120000+01'00') >>")
    out = io.BytesIO()
    out.write(lead + b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(out.tell() - len(lead))
        out.write(b"%d 0 obj\n" % number + body + b"\nendobj\n")
    start = out.tell() - len(lead)
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    for offset in offsets:
        out.write(b"%010d 00000 n \n" % offset)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R %s>>\n" % (len(objects) + 1, info, trailer.encode()))
    out.write(b"startxref\n%d\n%%%%EOF\n" % start)
    return out.getvalue()


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def scan(text: str) -> Image.Image:
    """A picture of a page with words in it."""
    image = Image.new("L", (612, 792), 255)
    ImageDraw.Draw(image).multiline_text((72, 72), text, fill=0)
    return image


def pdfs() -> dict[str, bytes]:
    """All PDF files by name."""
    agreement = write_pdf([Page(words) for words in AGREEMENT])
    rotated = [Page([(100, 600, 14, f"Turned by {angle} degrees"), (100, 300, 14, "Lower line")], rotate=angle)
               for angle in (0, 90, 180, 270)]  # fmt: skip
    cropped = [
        Page([(150, 600, 14, "Inside the crop box"), (150, 400, 14, "Second line")], crop=(100, 200, 500, 700)),
        Page([(10, 50, 14, "Origin below zero")], media=(-100, -100, 300, 400)),
        Page([(150, 600, 14, "Cropped and turned")], crop=(100, 200, 500, 700), rotate=90),
    ]
    note = "/Type /Annot /Rect"
    form = Page(
        [(72, 720, 12, "Name of the tenant:"), (72, 690, 12, "This form was filled in by hand, as one can see below.")],
        annotations=[
            f"<< {note} [200 715 400 735] /Subtype /Widget /FT /Tx /T (tenant) /V (Maria Puig) /F 4 /DA (/F1 12 Tf) >>",
            f"<< {note} [500 700 520 720] /Subtype /Text /Contents (Check the name) /T (Reviewer) >>",
        ],
    )
    mixed = [Page(AGREEMENT[0]), Page(image=scan("This page is only a picture of words.")), Page(), Page(AGREEMENT[2])]
    columns = Page(
        [(72 + 260 * column, 720 - 16 * row, 10, f"{'Left' if column == 0 else 'Right'} column line {row} of the text.")
         for column in (0, 1) for row in range(12)]
    )  # fmt: skip
    made = {
        "agreement.pdf": agreement,
        "rotated.pdf": write_pdf(rotated),
        "cropped.pdf": write_pdf(cropped),
        "scan.pdf": write_pdf([Page(image=scan("Only a picture.\nNo text layer."))]),
        "mixed.pdf": write_pdf(mixed),
        "blank.pdf": write_pdf([Page()]),
        "form.pdf": write_pdf([form], fields=["tenant"]),
        "columns.pdf": write_pdf([columns]),
        "truncated.pdf": agreement[: len(agreement) * 6 // 10],
        "junk_before.pdf": write_pdf([Page(AGREEMENT[2])], lead=b"HTTP/1.1 200 OK\r\n\r\n"),
        "empty.pdf": b"",
    }
    for name, user, owner in (("encrypted.pdf", PASSWORD, "owner"), ("owner_only.pdf", "", "owner")):
        writer = PdfWriter(clone_from=PdfReader(io.BytesIO(agreement)))
        writer.encrypt(user_password=user, owner_password=owner, algorithm="RC4-128")
        buffer = io.BytesIO()
        writer.write(buffer)
        made[name] = buffer.getvalue()
    return made


def _run(text: str, tag: str = "t") -> str:
    return f'<w:r xmlns:w="{W}"><w:{tag} xml:space="preserve">{text}</w:{tag}></w:r>'


def report_docx() -> bytes:
    """Headings, a numbered list, a table, a tracked change, a content control, a comment."""
    document = docx.Document()
    document.core_properties.title = "Yearly report"
    document.core_properties.author = "Legal"
    document.add_heading("Yearly report", 0)
    document.add_heading("Fees", 1)
    document.add_paragraph("The fee is due in January.")
    changed = document.add_paragraph("The fee is ")
    change = 'w:id="1" w:author="Anna" w:date="2024-05-01T10:00:00Z"'
    for xml in (
        f'<w:del xmlns:w="{W}" {change}>{_run("ONE", "delText")}</w:del>',
        f'<w:ins xmlns:w="{W}" {change}>{_run("TWO")}</w:ins>',
        _run(" million euros."),
    ):
        changed._p.append(etree.fromstring(xml))
    controlled = _run("This stands in a content control.")
    control = f'<w:sdt xmlns:w="{W}"><w:sdtPr/><w:sdtContent>{controlled}</w:sdtContent></w:sdt>'
    document.add_paragraph()._p.append(etree.fromstring(control))
    document.add_heading("Hours", 2)
    table = document.add_table(rows=0, cols=3)
    for row in (("Year", "Hours", "Amount"), ("2024", "310", "37,200"), ("2025", "280", "33,600")):
        cells = table.add_row().cells
        for cell, text in zip(cells, row, strict=True):
            cell.text = text
    document.add_paragraph("First point", style="List Bullet")
    document.add_paragraph("Second point", style="List Bullet")
    commented = document.add_paragraph("This sentence has a comment.")
    document.add_comment(commented.runs, text="Please check this.", author="Bea", initials="B")
    return _saved(document)


def _saved(document: object) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)  # type: ignore[attr-defined]
    return buffer.getvalue()


def budget_xlsx() -> bytes:
    """Two visible sheets and a hidden one; percent, thousands, a date, a formula without a cached value."""
    workbook = openpyxl.Workbook()
    first = workbook.active
    first.title = "Budget"
    for row in (("Item", "Amount", "Share"), ("Rent", 12000, 0.25), ("Salaries", 36000.5, 0.75)):
        first.append(row)
    first["B2"].number_format = first["B3"].number_format = "#,##0.00"
    first["C2"].number_format = first["C3"].number_format = "0%"
    first["A5"] = "Total"
    first["B5"] = "=SUM(B2:B3)"
    second = workbook.create_sheet("Dates")
    second["A1"] = "Start"
    second["B1"] = "2024-03-01"
    hidden = workbook.create_sheet("Secret")
    hidden["A1"] = "Hidden words"
    hidden.sheet_state = "hidden"
    return _saved(workbook)


def protected(package: bytes) -> bytes:
    """The package encrypted with the password."""
    buffer = io.BytesIO()
    msoffcrypto.format.ooxml.OOXMLFile(io.BytesIO(package)).encrypt(PASSWORD, buffer)
    return buffer.getvalue()


def with_member(package: bytes, name: str, data: bytes) -> bytes:
    """The package with one member added or replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.namelist():
            if member != name:
                target.writestr(member, source.read(member))
        target.writestr(name, data)
    return out.getvalue()


def laughs(package: bytes) -> bytes:
    """The billion laughs: nine levels of entities, each ten of the one below."""
    entities = ['<!ENTITY e0 "ha">']
    entities += [f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, 10)]
    body = f'<w:document xmlns:w="{W}"><w:body><w:p><w:r><w:t>&e9;</w:t></w:r></w:p></w:body></w:document>'
    xml = f'<?xml version="1.0"?><!DOCTYPE d [{"".join(entities)}]>{body}'
    return with_member(package, "word/document.xml", xml.encode())


def letter_eml() -> bytes:
    """HTML body, a CSV and a picture attached."""
    message = EmailMessage()
    message["From"] = "Anna Serra <anna@example.com>"
    message["To"] = "Bea <bea@example.com>"
    message["Subject"] = "Preu de la llicència"
    message["Date"] = "Fri, 01 Mar 2024 12:00:00 +0100"
    message.set_content("The price is EUR 900 a month.")
    message.add_alternative(
        "<html><body><h1>Price</h1><p>The price is EUR 900 a month.</p><ul><li>Paid monthly</li></ul></body></html>",
        subtype="html",
    )
    message.add_attachment(b"a,b\n1,2\n", maintype="text", subtype="csv", filename="figures.csv")
    message.add_attachment(b"\x89PNG\r\n\x1a\n0000", maintype="image", subtype="png", filename="logo.png")
    return message.as_bytes()


MARKDOWN = """# Handbook

Welcome to the **handbook**. See the [site](https://example.com/a-long-address) for more.

## Holidays

- Twenty-five days a year
- Carry over at most *five* days

| Year | Days |
|------|------|
| 2024 | 25   |
| 2025 | 26   |

```
# not a heading
```
"""
HTML = (
    "<html><head><title>Preus</title></head><body><main><h1>Preus</h1><p>Preu: 5 € – café “quote”</p></main>"
    "<aside>Outside of main.</aside><table><tr><th>Any</th><th>Preu</th></tr><tr><td>2024</td><td>5 €</td></tr></table>"
    "<script>var hidden = 1;</script></body></html>"
)
CATALAN = (
    "L'arrendatari ha de pagar la renda dins dels set primers dies de cada mes.\n\n"
    "Si no paga, l'arrendador pot resoldre el contracte després d'un requeriment per escrit.\n"
)


def texts() -> dict[str, bytes]:
    """All text files by name."""
    ragged = 'name,amount,note\n"Rent, office",12000\nSalaries,36000,monthly,extra\n'
    return {
        "handbook.md": MARKDOWN.encode(),
        "prices.html": HTML.encode("cp1252"),
        "lease_ca.txt": CATALAN.encode(),
        "lease_utf16.txt": CATALAN.encode("utf-16"),
        "lease_latin1.txt": CATALAN.encode("latin-1"),
        "ragged.csv": ragged.encode(),
        "semicolon.csv": "Any;Preu;Nota\n2024;5,50;té\n2025;6,10;cafè\n".encode(),
        "utf16.csv": "Any,Preu\n2024,5\n".encode("utf-16"),
        "letter.eml": letter_eml(),
        "empty.txt": b"",
    }


def main() -> None:
    """Write everything."""
    FOLDER.mkdir(exist_ok=True)
    report = report_docx()
    made = {**pdfs(), **texts(), "report.docx": report, "budget.xlsx": budget_xlsx()}
    made["renamed.xlsx"] = report
    made["protected.xlsx"] = protected(made["budget.xlsx"])
    made["bomb.docx"] = with_member(report, "word/media/zeros.bin", bytes(60 * 1024 * 1024))
    made["laughs.docx"] = laughs(report)
    for name, data in made.items():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
