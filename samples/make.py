"""Makes the sample files of the demo, byte for byte the same each time: `python samples/make.py`.

The PDF is written by hand (Helvetica, no library), so that it says exactly what stands here.
"""

import re
import zipfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import docx
import openpyxl

FOLDER = Path(__file__).resolve().parent
_MADE = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)

AGREEMENT = (
    (
        ("T", "SERVICE AGREEMENT"),
        ("P", "between Alder & Finch Cartography Ltd, 14 Quay Row, Marrowby (the Supplier)"),
        ("P", "and the Museum of Salt and Tides, Old Customs House, Port Lligall (the Customer)."),
        ("H", "1. Subject"),
        ("P", "1.1 The Supplier draws, prints and maintains the exhibition maps named in Annex A."),
        ("P", "1.2 The first set of maps shall be delivered no later than 30 April 2026."),
        ("H", "2. Fees"),
        ("P", "2.1 The Customer pays an annual fee of EUR 48,600, in four equal instalments."),
        ("P", "2.2 Invoices are due within thirty (30) days. Late payments bear interest at"),
        ("P", "4.5 per cent per year."),
        ("H", "3. Quality"),
        ("P", "3.1 The Supplier replaces any map whose colours fade within sixty (60) months,"),
        ("P", "without charge and within fifteen (15) working days of a written complaint."),
        ("H", "4. Copyright"),
        ("P", "4.1 The maps remain the property of the Supplier. The Customer may reproduce them"),
        ("P", "in its catalogues and on its website, naming the cartographer."),
    ),
    (
        ("H", "5. Confidentiality"),
        ("P", "5.1 Each party keeps the survey data of the other secret for five (5) years after"),
        ("P", "the end of this Agreement."),
        ("H", "6. Liability"),
        ("P", "6.1 The Supplier's total liability under this Agreement shall not exceed EUR 250,000"),
        ("P", "in any contract year."),
        ("P", "6.2 This cap does not apply to wilful misconduct or to injury of persons."),
        ("H", "7. Term and termination"),
        ("P", "7.1 This Agreement begins on 1 February 2026 and runs for three (3) years."),
        ("P", "7.2 Either party may terminate it by giving ninety (90) days' written notice to the"),
        ("P", "end of a calendar quarter."),
        ("H", "8. Governing law"),
        ("P", "8.1 Disputes are settled by arbitration in Marrowby, in English."),
        ("P", "Signed in two originals on 15 January 2026."),
    ),
)
_STYLES = {"T": ("F2", 16, 30), "H": ("F2", 11, 24), "P": ("F1", 10.5, 16)}

POLICY_TITLE = "Política de teletrabajo"
POLICY = (
    ("Ámbito", ("Esta política se aplica a todas las personas empleadas de Cartografía Robledal, S. L., salvo al "
     "personal del taller de impresión.")),
    ("Días", ("Cada persona puede teletrabajar hasta tres días por semana. Los martes son días de presencia "
     "obligatoria en la oficina de Villarrobla.")),
    ("Gastos", "La empresa abona una compensación de 55 euros al mes por los gastos de electricidad y de conexión."),
    ("Equipo", ("El equipo informático prestado se devuelve en un plazo de diez días hábiles después del fin de la "
     "relación laboral.")),
    ("Desconexión", "Nadie está obligado a responder mensajes entre las 19:00 y las 8:00."),
)  # fmt: skip

RULES = """# Reglament de la biblioteca municipal de Vallfosca de Mar

Aprovat pel ple municipal el 12 de març de 2025.

## Carnet

El carnet és gratuït per a totes les persones empadronades al municipi. El duplicat del carnet costa 4,50 euros.

## Préstec

Cada persona usuària pot endur-se fins a dotze documents alhora, durant trenta dies. El préstec es pot renovar dues
vegades si cap altra persona no ha reservat el document.

## Retards

Per cada setmana de retard, la persona usuària queda exclosa del préstec durant tres dies. No es cobren multes.

## Sala de mapes

Els mapes anteriors a 1850 només es poden consultar a la sala, amb guants i en presència de la bibliotecària.
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

MAIL = """From: Ilse Marrow <ilse.marrow@alder-finch.example>
To: Registrar <registrar@salt-and-tides.example>
Date: Tue, 10 Mar 2026 11:20:00 +0000
Subject: Delivery of the second set of maps
Message-ID: <20260310.1120@alder-finch.example>
MIME-Version: 1.0
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: 8bit

Dear colleagues,

the second set of maps leaves our workshop on 3 June 2026 with the carrier Tern Line, in two crates.
Crate one holds the harbour charts, crate two the relief model of the salt pans.
Please have somebody at the east gate: the driver cannot enter the courtyard.

Kind regards
Ilse Marrow
Alder & Finch Cartography Ltd
"""


def agreement_pdf() -> bytes:
    """The agreement as a PDF of two A4 pages."""
    objects: list[bytes] = [b"", b"", b"", b""]
    pages = []
    for lines in AGREEMENT:
        objects.append(_stream(lines))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> >>" % len(objects)
        )
        pages.append(b"%d 0 R" % len(objects))
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(pages), len(pages))
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /%s /Encoding /WinAnsiEncoding >>"
    objects[2], objects[3] = font % b"Helvetica", font % b"Helvetica-Bold"
    objects.append(b"<< /Title (Service Agreement) /Author (Alder & Finch Cartography Ltd) >>")
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\n" % (len(objects) + 1, len(objects))
    out += b"startxref\n%d\n%%%%EOF\n" % table
    return bytes(out)


def _stream(lines: tuple[tuple[str, str], ...]) -> bytes:
    out = [b"BT", b"72 780 Td"]
    for kind, text in lines:
        font, size, leading = _STYLES[kind]
        escaped = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("cp1252")
        out.append(f"/{font} {size} Tf 0 -{leading} Td (".encode() + escaped + b") Tj")
    out.append(b"ET")
    body = b"\n".join(out)
    return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(body), body)


def policy_docx() -> bytes:
    """The policy as a Word document."""
    document = docx.Document()
    properties = document.core_properties
    properties.title, properties.author, properties.language = POLICY_TITLE, "Cartografía Robledal", "es"
    properties.created = properties.modified = _MADE.replace(tzinfo=None)
    document.add_heading(POLICY_TITLE, level=1)
    for heading, text in POLICY:
        document.add_heading(heading, level=2)
        document.add_paragraph(text)
    out = BytesIO()
    document.save(out)
    return _dated(out.getvalue())


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


def made() -> dict[str, bytes]:
    """All sample files by name."""
    return {
        "contracts/service-agreement.pdf": agreement_pdf(),
        "contracts/delivery-notice.eml": MAIL.replace("\n", "\r\n").encode(),
        "price-list.xlsx": prices_xlsx(),
        "politica-de-teletrabajo.docx": policy_docx(),
        "reglament-biblioteca.md": RULES.encode(),
    }


if __name__ == "__main__":
    for name, body in made().items():
        path = FOLDER / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
