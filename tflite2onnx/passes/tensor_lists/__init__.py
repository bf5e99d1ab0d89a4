"""TensorLists become tensors."""
