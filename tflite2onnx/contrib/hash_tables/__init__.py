"""Hash tables: operators, and the pass that makes their contents constant."""
