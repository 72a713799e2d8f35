"""The picture: what the topics say, as tables of one database that operators ask with SQL."""
