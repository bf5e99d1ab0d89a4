"""The arguments of the commands, and the values that they accept."""
