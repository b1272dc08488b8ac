// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>
#include <lockstep/data/image.hpp>
#include <lockstep/data/transform.hpp>

#include <string>
#include <vector>

#include "data/transforms/pipeline.hpp"

namespace lockstep::trainer {

/// A picture with a text below it.
struct CaptionedImage {
  Picture image;  ///< RGB
  std::string caption;
};

/// A table of pictures.
struct ContactSheet {
  std::string title;
  std::size_t columns = 1;
  std::vector<CaptionedImage> cells;  ///< row by row
};

/// Rows of samples that are spread over the data: the image as it is stored, then training draws with their parameters.
/// The draws are those of the epochs 0, 1, ... at the position that is the index of the sample.
/// @param pipeline     of the training
/// @param class_names  empty = classes are shown as numbers
ContactSheet sheet_of_samples(const data::ImageStore& store, const data::Pipeline& pipeline,
                              const data::PipelineOptions& how, const std::vector<std::string>& class_names);

/// A picture for each transform with its default options.
/// @param index  the image that is transformed
ContactSheet sheet_of_transforms(const data::ImageStore& store, std::int64_t index, const data::PipelineOptions& how,
                                 const std::vector<data::TransformRow>& rows);

/// A page that contains the pictures.
std::string sheet_page(const ContactSheet& sheet);

}  // namespace lockstep::trainer
