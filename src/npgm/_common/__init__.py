"""What all rooms of the library share: operations on arrays, registries, checks of arguments, options of optimizers."""
