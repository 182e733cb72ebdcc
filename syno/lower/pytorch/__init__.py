"""The PyTorch code generator: an operator becomes the source text of a self-contained `nn.Module`."""
