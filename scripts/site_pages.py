"""Change pages for MkDocs (`hooks` in mkdocs.yml), so that GitHub and the site show the same files.

A link to a file outside of docs/ becomes its address in the repository. Lists are indented as
Python-Markdown reads them. A `|` in the code of a table is not escaped. A page without sections has
no table of contents, whose place its tables take.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")
_FENCE = re.compile(r"^( *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Return the text of a page as MkDocs is to read it."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))
    if "\n## " not in markdown:
        page.meta["hide"] = ["toc"]

    def find_target(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        inside = path.startswith("docs/")
        return link[1] if inside else f"{config.repo_url}/blob/main/{path}"

    parts = _FENCE.split(markdown)
    for i in range(0, len(parts), 2):
        text = re.sub(r"^ {2,3}(?=\S)", "    ", parts[i], flags=re.MULTILINE)
        text = _CODE.sub(lambda code: code[0].replace(r"\|", "|"), text)
        parts[i] = _LINK.sub(find_target, text)
    return "".join(parts)


if __name__ == "__main__":
    print(__doc__)
