"""Training runs: networks on images, several seeds at once where their form allows it."""
