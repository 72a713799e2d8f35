"""One XOR value for each open root, and one verdict for each root: the ledger, pure."""
