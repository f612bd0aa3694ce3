"""Every Python snippet of the book runs."""

import re
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[3] / "docs" / "book" / "src"
SNIPPETS = [
    pytest.param(code, id=f"{chapter.stem}-{number}")
    for chapter in sorted(BOOK.glob("*.md"))
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", chapter.read_text(), re.M | re.S))
]


def test_the_book_has_snippets_and_its_chapters_exist():
    assert len(SNIPPETS) >= 5
    chapters = re.findall(r"\]\(([\w-]+\.md)\)", (BOOK / "SUMMARY.md").read_text())
    assert sorted(chapters) == sorted(path.name for path in BOOK.glob("*.md") if path.name != "SUMMARY.md")
    for chapter in BOOK.glob("*.md"):
        for link in re.findall(r"\]\(([\w./-]+)\)", chapter.read_text()):
            assert (BOOK / link).exists(), f"{chapter.name} links to {link}"


@pytest.mark.parametrize("code", SNIPPETS)
def test_a_snippet_runs(code):
    exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})
