"""Variables become inputs and outputs."""
