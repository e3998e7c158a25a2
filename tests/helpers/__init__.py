"""What several tests need: tiny models and data, golden files, servers and processes that act."""
