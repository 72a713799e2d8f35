"""What is wrong with an installation: facts are gathered, judged, and each result has a code and a cure."""
