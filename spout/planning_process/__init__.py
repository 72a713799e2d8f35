"""The planning process of a query: it settles, plans, ticks and commits."""
