"""When jobs will end: what was foretold, how it is kept up to date, and how right it was."""
