// SPDX-License-Identifier: BSD-3-Clause
// Pillow's resize, bit by bit: weights in double, rounded to 22 bits after the point; two passes, horizontal first,
// with 8 bits between them. Antialiased in both directions.
#pragma once

#include <lockstep/data/transform.hpp>

#include "data/image/geometry.hpp"

namespace lockstep::data {

/// The part of the input that determines this part of the output.
Box resize_part_before(ImageSize in, ImageSize out, ResizeFilter filter, const Box& part);

/// Replaces a part of an image by a part of the resized image.
/// @param patch  contains at least resize_part_before(patch.full, out, filter, part)
void resize_part(Patch& patch, ImageSize out, ResizeFilter filter, const Box& part, Workspace& workspace);

/// Resizes a whole image.
void resize(Image& image, ImageSize out, ResizeFilter filter, Workspace& workspace);

enum class SizeMode { short_side, long_side, squash };

/// The size for a resize to one number, as torchvision computes it.
/// @param size      short side (or long side, or both sides)
/// @param max_size  limit of the long side; 0 = none. Used with SizeMode::short_side only
ImageSize resized_size(ImageSize image, int size, int max_size, SizeMode mode);

}  // namespace lockstep::data
