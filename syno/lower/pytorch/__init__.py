"""The PyTorch generator: an operator becomes the source of a self-contained `nn.Module`."""
