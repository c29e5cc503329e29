"""embedmill: how documents become a versioned vector index; knows nothing of Ray."""
