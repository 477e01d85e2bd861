"""Bytes to text by rule: marks and declarations first, statistics last and only where they can be trusted."""

import codecs
import re
from typing import Final

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_META_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([A-Za-z0-9_\-:]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"^\s*<\?xml[^>]+encoding\s*=\s*[\"']([A-Za-z0-9_\-:]+)", re.IGNORECASE)
_PRESCAN_BYTES: Final = 1024
# What browsers take these labels for (WHATWG Encoding Standard, 4.2).
_LABELS: Final = {"iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252", "gb2312": "gbk"}
_STATISTICS_BYTES: Final = 256
_HIGH_SHARE: Final = 0.3


def decode(data: bytes, *, html: bool = False) -> tuple[str, str]:
    """(text, charset). Byte order mark, then NUL pattern, then declaration (HTML), then UTF-8 if valid, then
    windows-1252. Only long text with many high bytes is guessed by statistics: on short text they mislead."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data.decode(name, "replace"), name.removesuffix("-sig")
    head = data[:4096]
    if head.count(0) > 0.15 * len(head):
        name = "utf-16-be" if head[0::2].count(0) > head[1::2].count(0) else "utf-16-le"
        return data.decode(name, "replace"), name
    if html:
        declared = _declared(data[:_PRESCAN_BYTES])
        if declared is not None:
            return data.decode(declared, "replace"), declared
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        pass
    high = sum(byte > 127 for byte in data[:65536])
    if not html and len(data) >= _STATISTICS_BYTES and high > _HIGH_SHARE * min(len(data), 65536):
        from charset_normalizer import from_bytes

        best = from_bytes(data[:65536]).best()
        if best is not None:
            return data.decode(best.encoding, "replace"), best.encoding
    return _windows_1252(data), "windows-1252"


def _windows_1252(data: bytes) -> str:
    # Five bytes are undefined in Python's table; browsers give the control of the same number (cleaned later).
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in data)


def _declared(head: bytes) -> str | None:
    match = _META_CHARSET.search(head) or _XML_ENCODING.search(head)
    if match is None:
        return None
    label = match.group(1).decode("ascii").lower()
    if label.startswith("utf-16"):
        return "utf-8"  # a declaration that could be read as ASCII is not UTF-16
    label = _LABELS.get(label, label)
    try:
        return codecs.lookup(label).name if _is_text_codec(label) else None
    except LookupError:
        return None


def _is_text_codec(label: str) -> bool:
    return bool(getattr(codecs.lookup(label), "_is_text_encoding", True))
