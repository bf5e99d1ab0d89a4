"""Matrix products, attention and what belongs to them."""
