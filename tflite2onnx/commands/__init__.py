"""The commands of the command line, each in a module of its name: what it takes, what it does."""
