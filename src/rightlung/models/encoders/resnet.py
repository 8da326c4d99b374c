"""ResNet-50 (He et al., 2016) in plain PyTorch, with the names of torchvision's weights, which most checkpoints use.

As torchvision's, a block halves the resolution in its 3 x 3 convolution ("v1.5"). There is no classifier.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

DEPTHS = (3, 4, 6, 3)
EXPANSION = 4


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut: (n, channels, h, w) to (n, 4 width, h / stride, w / stride)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = EXPANSION * width
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, features: Tensor) -> Tensor:
        """Add what the convolutions find to the shortcut."""
        found = relu(self.bn1(self.conv1(features)))
        found = relu(self.bn2(self.conv2(found)))
        shortcut = features if self.downsample is None else self.downsample(features)
        return relu(self.bn3(self.conv3(found)) + shortcut)


class ResNet50(nn.Module):
    """Images (n, 3, h, w) to the feature maps of the four stages: 256, 512, 1024 and 2048 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        channels = 64
        for stage, depth in enumerate(DEPTHS):
            width, blocks = 64 << stage, []
            for number in range(depth):
                blocks.append(Bottleneck(channels, width, 2 if stage and not number else 1))
                channels = EXPANSION * width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the feature maps, the finest first: 1/4, 1/8, 1/16 and 1/32 of the resolution."""
        features = max_pool2d(relu(self.bn1(self.conv1(images))), 3, 2, 1)
        found = []
        for stage in range(len(DEPTHS)):
            features = self.get_submodule(f"layer{stage + 1}")(features)
            found.append(features)
        return tuple(found)
