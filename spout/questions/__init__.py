"""What commands ask of a picture: each question is a query in a file whose name says it."""
