// SPDX-License-Identifier: BSD-3-Clause
// Masks move as those of torchvision: its functions v2 give the same pixels for masks that Pillow reads.
#include <lockstep/data/transform.hpp>
#include <lockstep/random/random.hpp>

#include <cstdlib>

#include "unit/data/image_files.hpp"

namespace lockstep::data {
namespace masks_peer_test {

constexpr int kHeight = 37;
constexpr int kWidth = 53;
constexpr int kClasses = 20;

/// A line of data.transform, and the same as an expression of Python for the mask `m`.
struct Case {
  std::string line;
  std::string python;
};

const std::vector<Case> kCases = {
    {"resize,size=7,5", "F.resize(m, [7, 5], N)"},
    {"resize,size=80,91", "F.resize(m, [80, 91], N)"},
    {"resize,size=36,54", "F.resize(m, [36, 54], N)"},
    {"resize,size=16", "F.resize(m, [16], N)"},
    {"center_crop,size=20,31", "F.center_crop(m, [20, 31])"},
    {"horizontal_flip,p=1", "F.horizontal_flip(m)"},
    {"vertical_flip,p=1", "F.vertical_flip(m)"},
    {"rotate,degrees=20,20", "F.rotate(m, 20, N, fill=255)"},
};

// Masks of the class tv_tensors.Mask have another rule in `resize` of torchvision, which moves a mask by up to half a
// pixel relative to its image: floor(i * scale). docs/images.md states this, so it is checked as well.
const char* const kScript = R"(
import sys
import numpy as np, torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2, InterpolationMode
F, N = v2.functional, InterpolationMode.NEAREST
m = Image.open("mask.pgm")
for i, case in enumerate(open("cases.txt").read().splitlines()):
    open(f"{i}.bin", "wb").write(np.asarray(eval(case)).tobytes())
pixels = torch.from_numpy(np.array(m))[None]
exact = F.resize(tv_tensors.Image(pixels), [7, 5], InterpolationMode.NEAREST_EXACT)[0].numpy()
assert (exact == np.asarray(F.resize(m, [7, 5], N))).all()
floor = F.resize(tv_tensors.Mask(pixels), [7, 5])[0].numpy()
rows = [int(i * pixels.shape[1] / 7) for i in range(7)]
columns = [int(i * pixels.shape[2] / 5) for i in range(5)]
assert (floor == pixels[0].numpy()[np.ix_(rows, columns)]).all()
)";

TEST(MaskPeerTest, PixelsAreThoseOfTorchvision) {
  const char* const python = std::getenv("LOCKSTEP_PEER_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "LOCKSTEP_PEER_PYTHON names no Python with torchvision";
  const TemporaryFolder folder;
  random::Sequence random(1, random::Stream::augment, 0);
  std::string pgm = "P5 " + std::to_string(kWidth) + " " + std::to_string(kHeight) + " 255\n";
  for (int i = 0; i < kHeight * kWidth; ++i) {
    const auto number = random.below(kClasses + 1);
    pgm += static_cast<char>(number == kClasses ? kIgnoredPixel : number);
  }
  folder.write("mask.pgm", pgm);
  folder.write("list.txt", "mask.pgm mask.pgm\n");
  folder.write("script.py", kScript);
  std::string cases;
  for (const Case& each : kCases) cases += each.python + "\n";
  folder.write("cases.txt", cases);
  const std::string command = "cd '" + folder.path() + "' && '" + python + "' script.py > output.txt 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << folder.read("output.txt");

  for (std::size_t i = 0; i < kCases.size(); ++i) {
    const Splits splits = open_with({{"name", "list"},
                                     {"path", folder.path("list.txt")},
                                     {"target", "mask"},
                                     {"classes", std::to_string(kClasses)},
                                     {"val_fraction", "0"},
                                     {"val_transform", "to_float"},
                                     {"transform", kCases[i].line}});
    std::string bytes;
    for (const std::int64_t c : values_of<std::int64_t>(get(*splits.train, {0}).target())) {
      bytes += static_cast<char>(c == kIgnored ? kIgnoredPixel : c);
    }
    EXPECT_TRUE(bytes == folder.read(std::to_string(i) + ".bin")) << kCases[i].line;
  }
}

}  // namespace masks_peer_test
}  // namespace lockstep::data
