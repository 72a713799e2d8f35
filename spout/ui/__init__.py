"""The page: what operators read from the topics, in a browser and live."""
