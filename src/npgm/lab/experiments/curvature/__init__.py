"""The curvature of a loss along the training of a network."""
