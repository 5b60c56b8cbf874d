"""What the Makefile calls: for the environment, the notebooks and the repository's address."""
