"""What commands ask of a picture: each question is a query in a file of its own, whose name says it."""
