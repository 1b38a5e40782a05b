"""The settings of a sidecar: the model, how they are read, and what is said of them."""
