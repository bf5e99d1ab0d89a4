"""LiteRT's kernels other than its plain kernels, in a process of their own."""
