"""What a person runs from beginning to end, and the command line."""
