// SPDX-License-Identifier: BSD-3-Clause
#include "data/transforms/pipeline.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "core/text/duration.hpp"
#include "core/text/table.hpp"
#include "data/image/color.hpp"
#include "data/image/geometry.hpp"
#include "data/transforms/transforms.hpp"
#include "kernels/pixels.hpp"

namespace lockstep::data {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kNormalize = "normalize";

/// A line of the configuration, before its transform is made.
struct ParsedLine : ChosenRow<TransformRow> {
  std::string place;  ///< start of messages
};

ParsedLine parse_line(const std::string& text, const std::string& key, const std::vector<TransformRow>& rows) {
  const std::string place = key + " '" + text + "'";
  return {choose_row(rows, text, {}, key, place), place};
}
std::vector<ParsedLine> parse_lines(const PipelineOptions& options, const std::vector<TransformRow>& rows) {
  std::vector<ParsedLine> lines;
  for (const std::string& text : options.lines) lines.push_back(parse_line(text, options.key, rows));
  const bool has_tensor = std::any_of(lines.begin(), lines.end(),
                                      [](const ParsedLine& line) { return line.row->stage == TransformStage::tensor; });
  if (!has_tensor) lines.push_back(parse_line("to_float", options.key, builtin_transforms()));
  return lines;
}

void check_masks(const std::vector<ParsedLine>& lines) {
  for (const ParsedLine& line : lines) {
    if (line.row->masks != MaskUse::refused || line.row->stage == TransformStage::tensor) continue;
    throw ConfigError(line.place + ": " + line.row->name +
                      " cannot be used with data.target = mask, because it does not transform masks; remove the line");
  }
}

/// Pixels first, then tensors; at most one line that makes several crops; nothing random in an evaluation.
void check_stages(const std::vector<ParsedLine>& lines, bool is_training) {
  const ParsedLine* tensor = nullptr;
  const ParsedLine* crops = nullptr;
  for (const ParsedLine& line : lines) {
    if (line.row->is_random && !is_training) {
      throw ConfigError(line.place + ": " + line.row->name +
                        " is random, but evaluations use no random numbers; remove the line");
    }
    if (line.row->stage == TransformStage::tensor) {
      tensor = &line;
    } else if (tensor != nullptr) {
      throw ConfigError(line.place + ": " + line.row->name + " changes pixels, but " + tensor->row->name +
                        " has already converted them to float32; move the line before it");
    }
    if (line.row->stage != TransformStage::crops) continue;
    if (crops != nullptr) throw ConfigError(line.place + ": only one line can produce several crops; remove one");
    crops = &line;
  }
}

ChannelStatistics with_channels(ChannelStatistics statistics, int channels, const std::string& place) {
  const auto count = static_cast<std::size_t>(channels);
  for (auto* values : {&statistics.mean, &statistics.std}) {
    if (values->size() == 1) values->resize(count, values->front());
    if (values->size() != count) {
      throw ConfigError(place + ": " + std::to_string(values->size()) + " numbers are given for images with " +
                        std::to_string(channels) + " channels; give one, or one per channel");
    }
  }
  return statistics;
}

/// The facts for one line: its own statistics, or for other transforms those of the `normalize` line.
TransformContext context_of(const std::vector<ParsedLine>& lines, const ParsedLine& own,
                            const PipelineOptions& options) {
  TransformContext context{.channels = options.channels, .statistics = imagenet_statistics()};
  for (const ParsedLine& line : lines) {
    const bool is_own = &line == &own;
    if (line.row->name != kNormalize || (!is_own && own.row->name == kNormalize)) continue;
    context.statistics =
        with_channels(normalize_statistics(line.options, options.statistics), options.channels, line.place);
  }
  return context;
}

/// @param classes  0 = unlimited
void check_classes(const Image& mask, std::int64_t classes) {
  if (classes == 0) return;
  const auto is_bad = [classes](std::uint8_t value) { return value >= classes && value != kIgnoredPixel; };
  const auto bad = std::find_if(mask.pixels.begin(), mask.pixels.end(), is_bad);
  if (bad == mask.pixels.end()) return;
  const auto position = bad - mask.pixels.begin();
  throw DataError("the mask contains class " + std::to_string(*bad) + " in row " +
                  std::to_string(position / mask.width) + ", column " + std::to_string(position % mask.width) +
                  ", but there are " + std::to_string(classes) +
                  " classes (255 = ignored); correct the mask or set data.classes");
}

/// Replaces stored values by the numbers of their classes.
void number_classes(Image& mask, const std::vector<int>& values) {
  if (values.empty()) return;
  std::array<int, 256> numbers;
  numbers.fill(-1);
  numbers[kIgnoredPixel] = kIgnoredPixel;
  for (std::size_t c = 0; c < values.size(); ++c) numbers[static_cast<std::size_t>(values[c])] = static_cast<int>(c);
  for (std::size_t i = 0; i < mask.pixels.size(); ++i) {
    std::uint8_t& pixel = mask.pixels[i];
    if (numbers[pixel] < 0) {
      const auto width = static_cast<std::size_t>(mask.width);
      throw DataError("the mask contains the value " + std::to_string(pixel) + " in row " + std::to_string(i / width) +
                      ", column " + std::to_string(i % width) +
                      ", which data.mask_values does not list; correct the mask or add the value");
    }
    pixel = static_cast<std::uint8_t>(numbers[pixel]);
  }
}

/// Copies a part of decoded pixels.
void copy_pixels(const StoredImage& stored, const Box& part, Image& image) {
  image.reshape(part.size(), stored.shape.channels);
  const auto channels = static_cast<std::size_t>(stored.shape.channels);
  const std::size_t stride = static_cast<std::size_t>(stored.shape.width) * channels;
  const std::uint8_t* from = stored.pixels.data() + static_cast<std::size_t>(part.top) * stride +
                             static_cast<std::size_t>(part.left) * channels;
  for (int y = 0; y < part.height; ++y, from += stride) std::memcpy(image.row(y), from, image.stride());
}

}  // namespace

void apply_whole(const PixelTransform& transform, Patch& patch, const Box& part, const Parameters& drawn,
                 Workspace& workspace) {
  const ImageSize after = transform.size_after(patch.full, drawn);
  transform.apply(patch.image, drawn, workspace);
  data::crop(patch.image, part, workspace.spare);
  patch.area = part;
  patch.full = after;
}

/// A transform of pixels, and its optional interfaces; null = it does not have them.
struct Pipeline::PixelStep {
  explicit PixelStep(const PixelTransform& pixels)
      : transform(&pixels),
        mask(dynamic_cast<const MaskTransform*>(&pixels)),
        part(dynamic_cast<const PartTransform*>(&pixels)),
        reduced(dynamic_cast<const ReducedTransform*>(&pixels)) {}

  const PixelTransform* transform;
  const MaskTransform* mask;
  const PartTransform* part;
  const ReducedTransform* reduced;
};

struct Pipeline::Line {
  Line(const TransformRow& row, std::unique_ptr<Transform> made)
      : name(row.name),
        is_random(row.is_random),
        transform(std::move(made)),
        tensor(dynamic_cast<const TensorTransform*>(transform.get())) {
    const auto* const crops = dynamic_cast<const MultiCropTransform*>(transform.get());
    for (int i = 0; crops != nullptr && i < crops->crops(); ++i) steps.emplace_back(crops->crop(i));
    if (const auto* const pixels = dynamic_cast<const PixelTransform*>(transform.get())) steps.emplace_back(*pixels);
    if (row.stage == TransformStage::tensor ? tensor == nullptr : steps.empty()) {
      throw ConfigError("its function `make` returned a transform of another stage");
    }
    if (row.masks == MaskUse::moved && !steps.empty() && steps.front().mask == nullptr) {
      throw ConfigError("it moves pixels, but its transform is no MaskTransform");
    }
  }

  const PixelStep& step(int crop) const { return steps[steps.size() == 1 ? 0 : static_cast<std::size_t>(crop)]; }
  /// The transform that draws the parameters.
  const Transform& drawing(int crop) const {
    if (tensor != nullptr) return *transform;
    return *step(crop).transform;
  }

  std::string name;
  bool is_random;
  std::unique_ptr<Transform> transform;
  const TensorTransform* tensor;  ///< null = it changes pixels
  std::vector<PixelStep> steps;   ///< one, or one for each crop; none = it changes float values
};
bool needs_statistics(const std::vector<std::string>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const std::string& text) {
    const std::vector<std::string> parts = split_list(text, ',');
    return parts.front() == kNormalize && std::find(parts.begin(), parts.end(), "mean=auto") != parts.end();
  });
}

Pipeline::Pipeline(const PipelineOptions& options, const std::vector<TransformRow>& rows) : options_(options) {
  const std::vector<ParsedLine> parsed = parse_lines(options, rows);
  check_stages(parsed, options.is_training);
  if (options.has_masks) check_masks(parsed);
  for (const ParsedLine& line : parsed) {
    try {
      const TransformContext context = context_of(parsed, line, options);
      std::unique_ptr<Transform> transform = line.row->make(line.options, context);
      if (transform == nullptr) throw ConfigError("its function `make` returned nothing");
      lines_.emplace_back(*line.row, std::move(transform));
    } catch (const ConfigError& error) {
      throw ConfigError(line.place + ": " + error.what());
    }
    if (line.row->stage != TransformStage::tensor) ++pixel_lines_;
  }
  // The first tensor transform works on bytes where it can. Otherwise, it gets byte / 255.
  const auto* const of_bytes = dynamic_cast<const ByteTransform*>(lines_[pixel_lines_].transform.get());
  first_table_ = of_bytes != nullptr ? of_bytes->byte_table() : fraction_table(options.channels);
  first_tensor_line_ = pixel_lines_ + (of_bytes != nullptr ? 1 : 0);
}

Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

int Pipeline::crops() const noexcept {
  std::size_t count = 1;
  for (const Line& line : lines_) count = std::max(count, line.steps.size());
  return static_cast<int>(count);
}

std::optional<ImageSize> Pipeline::size(std::optional<ImageSize> input, int crop) const {
  for (std::size_t k = 0; k < pixel_lines_; ++k) input = lines_[k].step(crop).transform->fixed_size(input);
  return input;
}

void Pipeline::draw_all(const batch::Draw& draw, ImageSize size, int crop, Workspace& workspace) const {
  workspace.drawn.resize(lines_.size());
  workspace.sizes.resize(lines_.size() + 1);
  workspace.sizes[0] = size;
  for (std::size_t k = 0; k < lines_.size(); ++k) {
    // Every crop has numbers of its own for every line.
    const std::uint64_t first = static_cast<std::uint64_t>(k) << 32 | static_cast<std::uint64_t>(crop) << 24;
    random::Sequence random(lines_[k].is_random ? options_.seed : 0, random::Stream::augment,
                            static_cast<std::uint64_t>(draw.epoch), static_cast<std::uint64_t>(draw.position), first);
    const ImageSize before = workspace.sizes[k];
    workspace.drawn[k] = lines_[k].drawing(crop).draw(random, before);
    workspace.sizes[k + 1] =
        k < pixel_lines_ ? lines_[k].step(crop).transform->size_after(before, workspace.drawn[k]) : before;
  }
  workspace.mask_size = size;
  workspace.first_drawn = workspace.drawn.front();  // the mask is not reduced during decoding
}

/// Steps from the last transform to the first: the part of its input that each one requires.
void Pipeline::find_parts(int crop, Workspace& workspace) const {
  workspace.parts.resize(pixel_lines_ + 1);
  workspace.parts[pixel_lines_] = whole(workspace.sizes[pixel_lines_]);
  for (std::size_t k = pixel_lines_; k-- > 0;) {
    const PartTransform* const part = lines_[k].step(crop).part;
    workspace.parts[k] = part != nullptr
                             ? part->part_before(workspace.parts[k + 1], workspace.sizes[k], workspace.drawn[k])
                             : whole(workspace.sizes[k]);
  }
}

void Pipeline::decode(const StoredImage& stored, const ImageHeader& header, int crop, Workspace& workspace) const {
  Patch& patch = workspace.patch;
  int reduction = 1;
  const bool can_reduce = !stored.file.empty() && !options_.decodes_exactly && header.format == ImageFormat::jpeg;
  const ReducedTransform* const first = pixel_lines_ > 0 ? lines_[0].step(crop).reduced : nullptr;
  if (can_reduce && first != nullptr) {
    reduction = first->max_reduction(workspace.sizes[0], workspace.drawn[0]);
    const ImageSize reduced = reduced_size(workspace.sizes[0], reduction);
    workspace.drawn[0] = first->reduced(workspace.drawn[0], workspace.sizes[0], reduced);
    workspace.sizes[0] = reduced;
  }
  find_parts(crop, workspace);
  patch.area = workspace.parts[0];
  patch.full = workspace.sizes[0];
  if (stored.file.empty()) {
    copy_pixels(stored, patch.area, patch.image);
    set_channels(patch.image, options_.channels, workspace.spare);
    return;
  }
  const DecodeOptions how{.channels = options_.channels,
                          .part = patch.area,
                          .reduction = reduction,
                          .applies_orientation = options_.applies_orientation};
  decode_image(stored.file, header, how, patch.image, workspace);
}

void Pipeline::run_pixels(const StoredImage& stored, const batch::Draw& draw, Workspace& workspace, int crop) const {
  const auto start = workspace.times != nullptr ? Clock::now() : Clock::time_point();
  ImageHeader header;
  ImageSize size{stored.shape.height, stored.shape.width};
  if (stored.pixels.empty()) {
    header = read_image_header(stored.file, options_.max_bytes);
    size = options_.applies_orientation ? header.oriented_size() : header.size();
  }
  draw_all(draw, size, crop, workspace);
  decode(stored, header, crop, workspace);
  if (workspace.times != nullptr) workspace.times->decode_seconds += seconds_since(start);
  for (std::size_t k = 0; k < pixel_lines_; ++k) {
    const PixelStep& step = lines_[k].step(crop);
    const Box& part = workspace.parts[k + 1];
    if (step.part != nullptr) {
      step.part->apply_part(workspace.patch, part, workspace.drawn[k], workspace);
    } else {
      apply_whole(*step.transform, workspace.patch, part, workspace.drawn[k], workspace);
    }
  }
}

void Pipeline::check_size(std::size_t numbers, const Image& image) const {
  if (static_cast<std::size_t>(image.height) * image.stride() == numbers) return;
  throw DataError("the transformed image has " + std::to_string(image.height) + " x " + std::to_string(image.width) +
                  " pixels (height x width), but " +
                  std::to_string(numbers / static_cast<std::size_t>(image.channels)) +
                  " are required, because all images must have one size; add resize and center_crop to " +
                  options_.key + ", for example");
}

void Pipeline::write_planes(std::span<float> out, Workspace& workspace) const {
  const Image& image = workspace.patch.image;
  check_size(out.size(), image);
  const std::size_t plane = static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width);
  kernels::look_up(image.pixels.data(), plane, image.channels, first_table_[0].data(), plane, out.data());
  const FloatImage values{.values = out.data(), .channels = image.channels, .size = image.size()};
  for (std::size_t k = first_tensor_line_; k < lines_.size(); ++k) {
    lines_[k].tensor->apply(values, workspace.drawn[k]);
  }
}

void Pipeline::run(const StoredImage& stored, const batch::Draw& draw, std::span<float> out, Workspace& workspace,
                   int crop) const {
  run_pixels(stored, draw, workspace, crop);
  write_planes(out, workspace);
}

void Pipeline::write_channels_last(std::span<float> out, Workspace& workspace) const {
  const Image& image = workspace.patch.image;
  check_size(out.size(), image);
  const std::size_t pixels = static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width);
  kernels::look_up_pixels(image.pixels.data(), pixels, image.channels, first_table_[0].data(), out.data());
}

void Pipeline::run_mask(const StoredImage& stored, std::int64_t classes, Workspace& workspace) const {
  Image& mask = workspace.mask;
  const ImageHeader header = read_image_header(stored.file, options_.max_bytes);
  decode_mask(stored.file, header, mask);
  const bool turns = options_.applies_orientation && header.orientation != 1;
  if (turns) apply_orientation(mask, header.orientation, workspace.spare);
  if (mask.size() != workspace.mask_size) {
    throw DataError("the mask has " + size_text(mask.size()) + " pixels (height x width), but its image has " +
                    size_text(workspace.mask_size) + "; correct or exclude the pair");
  }
  number_classes(mask, options_.mask_values);
  check_classes(mask, classes);
  for (std::size_t k = 0; k < pixel_lines_; ++k) {
    const Parameters& drawn = k == 0 ? workspace.first_drawn : workspace.drawn[k];
    if (const MaskTransform* const mover = lines_[k].step(0).mask) mover->apply_to_mask(mask, drawn, workspace);
  }
}

std::string Pipeline::drawn_text(const Workspace& workspace, int crop) const {
  std::vector<std::string> texts;
  for (std::size_t k = 0; k < lines_.size(); ++k) {
    if (!lines_[k].is_random) continue;
    const std::string text = lines_[k].drawing(crop).text(workspace.drawn[k]);
    if (!text.empty()) texts.push_back(lines_[k].name + " " + text);
  }
  return joined(texts, "; ");
}

std::optional<ByteTable> Pipeline::byte_table() const {
  if (first_tensor_line_ < lines_.size()) return std::nullopt;
  return first_table_;
}

std::string Pipeline::float_transform() const {
  return first_tensor_line_ < lines_.size() ? lines_[first_tensor_line_].name : "";
}

}  // namespace lockstep::data
