"""Matrix products, attention, and operators of language models beside attention."""
