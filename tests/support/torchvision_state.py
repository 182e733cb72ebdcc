"""Names and shapes of torchvision's state dicts, in its order, written down from its networks; torchvision is not needed."""

from __future__ import annotations

Shapes = dict[str, tuple[int, ...]]


def batch_norm(name: str, features: int) -> Shapes:
    shapes = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (features,))
    return {f"{name}.{key}": shape for key, shape in {**shapes, "num_batches_tracked": ()}.items()}


def linear(name: str, before: int, after: int) -> Shapes:
    return {f"{name}.weight": (after, before), f"{name}.bias": (after,)}


def densenet121(classes: int) -> Shapes:
    state: Shapes = {"features.conv0.weight": (64, 3, 7, 7), **batch_norm("features.norm0", 64)}
    features = 64
    for block, layers in enumerate((6, 12, 24, 16), 1):
        for layer in range(1, layers + 1):
            prefix = f"features.denseblock{block}.denselayer{layer}"
            state |= {**batch_norm(f"{prefix}.norm1", features), f"{prefix}.conv1.weight": (128, features, 1, 1)}
            state |= {**batch_norm(f"{prefix}.norm2", 128), f"{prefix}.conv2.weight": (32, 128, 3, 3)}
            features += 32
        if block < 4:
            prefix = f"features.transition{block}"
            state |= {**batch_norm(f"{prefix}.norm", features), f"{prefix}.conv.weight": (features // 2, features, 1, 1)}
            features //= 2
    return {**state, **batch_norm("features.norm5", features), **linear("classifier", features, classes)}


def resnext29_2x64d(classes: int) -> Shapes:
    """`ResNet(Bottleneck, [3, 3, 3, 0], groups=2, width_per_group=64)`."""
    state: Shapes = {"conv1.weight": (64, 3, 7, 7), **batch_norm("bn1", 64)}
    before = 64
    for stage, count in enumerate((3, 3, 3, 1)):
        planes = 64 * 2**stage
        width, after = 2 * planes, 4 * planes
        for block in range(count):
            prefix = f"layer{stage + 1}.{block}"
            kernels = ((before, width, 1), (width // 2, width, 3), (width, after, 1))
            for number, (taken, made, side) in enumerate(kernels, 1):
                state[f"{prefix}.conv{number}.weight"] = (made, taken, side, side)
                state |= batch_norm(f"{prefix}.bn{number}", made)
            if not block:
                state[f"{prefix}.downsample.0.weight"] = (after, before, 1, 1)
                state |= batch_norm(f"{prefix}.downsample.1", after)
            before = after
    return {**state, **linear("fc", 2048, classes)}


def efficientnet_v2_s(classes: int) -> Shapes:
    def convolution(name: str, before: int, after: int, kernel: int) -> Shapes:
        return {f"{name}.0.weight": (after, before, kernel, kernel), **batch_norm(f"{name}.1", after)}

    state = convolution("features.0", 3, 24, 3)
    before = 24
    stages = ((1, 24, 2), (4, 48, 4), (4, 64, 4), (4, 128, 6), (6, 160, 9), (6, 256, 15))
    for stage, (expansion, after, blocks) in enumerate(stages, 1):
        for number in range(blocks):
            block, inner = f"features.{stage}.{number}.block", expansion * before
            if stage == 1:
                state |= convolution(f"{block}.0", before, after, 3)
            elif stage <= 3:
                state |= {**convolution(f"{block}.0", before, inner, 3), **convolution(f"{block}.1", inner, after, 1)}
            else:
                squeezed = before // 4
                state |= {**convolution(f"{block}.0", before, inner, 1), **convolution(f"{block}.1", 1, inner, 3)}
                for fc, (taken, made) in {"fc1": (inner, squeezed), "fc2": (squeezed, inner)}.items():
                    state |= {f"{block}.2.{fc}.weight": (made, taken, 1, 1), f"{block}.2.{fc}.bias": (made,)}
                state |= convolution(f"{block}.3", inner, after, 1)
            before = after
    return {**state, **convolution("features.7", before, 1280, 1), **linear("classifier.1", 1280, classes)}
