"""Each quote of an answer stands on the cited page: checked by another PDF reader, and its box by the pixels."""

from pathlib import Path

import httpx
import pypdf
import pypdfium2
import pytest

from tests.support.stack import upload, wait_for_end

QUESTIONS = (
    ("agreement.pdf", "Up to what amount is the supplier liable?"),
    ("agreement.pdf", "How long before must a written notice of termination be given?"),
)


def words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text.lower().replace("-\n", "")).split()


def dark_share(path: Path, page_number: int, box: list[float]) -> float:
    """Share of dark pixels inside a box (points, origin top left) of the page as displayed."""
    document = pypdfium2.PdfDocument(path)
    scale = 2.0
    image = document[page_number - 1].render(scale=scale).to_pil().convert("L")
    document.close()
    left, top, right, bottom = (round(value * scale) for value in box)
    assert 0 <= left < right <= image.width + 1
    assert 0 <= top < bottom <= image.height + 1
    histogram = image.crop((left, top, right, bottom)).histogram()
    return sum(histogram[:128]) / max(1, sum(histogram))


@pytest.mark.slow
def test_quotes_stand_where_they_are_said_to_stand(client: httpx.Client, collection: str, data_files: Path) -> None:
    for name in {name for name, _ in QUESTIONS}:
        made = upload(client, collection, name, (data_files / name).read_bytes())
        assert wait_for_end(client, made["document"]["id"])["state"] == "indexed"
    for name, question in QUESTIONS:
        answer = client.post(f"/api/v1/collections/{collection}/answers", json={"question": question}).json()
        assert answer["state"] == "succeeded", answer
        assert answer["citations"]
        reader = pypdf.PdfReader(data_files / name)
        for citation in answer["citations"]:
            assert citation["verified"] is True
            page = words(reader.pages[citation["page"] - 1].extract_text())
            quote = words(citation["quote"])
            assert any(page[i : i + len(quote)] == quote for i in range(len(page))), citation["quote"]
            assert citation["boxes"]
            for box in citation["boxes"]:
                assert dark_share(data_files / name, citation["page"], box) > 0.02
