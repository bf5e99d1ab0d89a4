"""The short form of schemas: `schema.py`, `metadata_schema.py` and `litertlm_schema.py`."""


def parse_tables(text: str) -> dict[str, list[str]]:
    """Return the fields of each table in a text."""
    tables: dict[str, list[str]] = {}
    fields: list[str] = []
    for word in text.split():
        if ":" in word or word == "-":
            fields.append(word)
        else:
            fields = tables[word] = []
    return tables
