"""Which parsers made a page: changes whenever the same bytes could give another text."""

from importlib.metadata import version
from typing import Final

# Raised by hand with every change of the readers or the chunker that changes what is stored.
READERS_REVISION: Final = 1

PARSER_FINGERPRINT: Final = "-".join(
    (
        f"r{READERS_REVISION}",
        f"pdfium{version('pypdfium2')}",
        f"liteparse{version('liteparse')}",
        f"unstructured{version('unstructured')}",
        f"openpyxl{version('openpyxl')}",
    )
)
