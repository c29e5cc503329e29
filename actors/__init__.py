"""Who does it on a cluster: plain classes until spawned; only actor_pool.py touches Ray."""
