"""Vector stores: where the records of an index version live."""
