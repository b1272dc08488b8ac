// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::optim {

/// Number of elements of a parameter that are summed together. Parameters are divided among ranks, and gradients are
/// summed, in complete pieces that start at the first element of a parameter, so that no result depends on the
/// division.
inline constexpr std::int64_t kPieceElements = 4096;

/// One parameter in a flat block, aligned to 64 bytes, with padding between segments. A block can be the slice of this
/// rank of a longer block: then only elements [own_begin, own_end) of a segment are inside it.
struct Segment {
  std::string name;  ///< dotted name in the model, such as "conv1.weight"
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< strides in elements, dense in memory; empty = row-major
  std::int64_t offset = 0;            ///< first element in the block; negative if the slice starts later
  std::int64_t count = 0;             ///< elements
  std::int64_t own_begin = 0;         ///< this rank updates elements
  std::int64_t own_end = 0;  ///<   [own_begin, own_end) of the segment only; own_begin is a multiple of a piece
};

/// Properties of a parameter, for building parameter groups.
struct ParameterInfo {
  std::string name;
  std::int64_t dims = 0;          ///< dimensions of its shape
  std::int64_t count = 0;         ///< elements
  bool is_norm = false;           ///< belongs to a batch, instance, group or layer norm
  bool is_depthwise = false;      ///< belongs to a depthwise two-dimensional convolution
  bool is_offset = false;         ///< belongs to the offset layer of a deformable convolution
  bool is_frozen = false;         ///< not trained; belongs to no group
  std::string same_as = {};       ///< earlier name of the same tensor; empty = none
  std::int64_t layers_after = 0;  ///< number of layers between its layer and the output
  bool is_undecayed = false;      ///< optim.no_decay=norms_biases excludes it from weight decay, whatever its shape
};

/// A flat buffer of parameters of one dtype.
struct FlatBlock {
  DType dtype = DType::float32;
  std::byte* parameters = nullptr;  ///< GPU memory if FlatParameters::as_tensors is not null
  std::int64_t count = 0;           ///< elements, padding included
  std::vector<Segment> segments;    ///< segments in ascending order of offset
  bool is_slice = false;            ///< other ranks have the other parts (strategy.name=sharded)

  bool is_half() const noexcept { return dtype == DType::float16 || dtype == DType::bfloat16; }
};

/// Calls visit(block, segment) with the numbers of every segment.
template <class Visit>
void for_each_segment(std::span<const FlatBlock> blocks, const Visit& visit) {
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t s = 0; s < blocks[b].segments.size(); ++s) visit(b, s);
  }
}

/// A part of the averaged gradient of one parameter: one or several pieces.
struct GradientPiece {
  std::size_t block = 0;
  std::size_t segment = 0;
  std::int64_t begin = 0;  ///< first element in the segment
  std::int64_t count = 0;
  const std::byte* values = nullptr;  ///< valid during the call only
};

/// Calls visit(GradientPiece) for parts of `given` with at most `longest` elements.
/// @param element_bytes  bytes per element
template <class Visit>
void for_each_part(const GradientPiece& given, std::int64_t longest, std::size_t element_bytes, const Visit& visit) {
  for (std::int64_t position = 0; position < given.count; position += longest) {
    GradientPiece part = given;
    part.begin += position;
    part.count = std::min(longest, given.count - position);
    part.values += static_cast<std::size_t>(position) * element_bytes;
    visit(part);
  }
}

class TensorParameters;

/// The interface of parameters for optimizers; parallel::ParameterStore implements it.
class FlatParameters {
 public:
  virtual ~FlatParameters() = default;

  virtual std::span<const FlatBlock> blocks() const = 0;

  /// Allocates zero-initialized memory for states. Ranks that share the parameters share it; each writes its own parts.
  /// Collective over these ranks.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  /// From now on, every parameter has one owner that updates all of it.
  /// @throws ConfigError  parameters are divided within (strategy.name=sharded without owners)
  virtual void own_whole_parameters() = 0;

  /// Returns when all ranks have contributed the gradients of this step. Collective over the ranks that train together.
  virtual void finish_gradients() {}
  /// Whether any rank had a gradient for this parameter. Parameters without a gradient are not updated.
  virtual bool has_gradient(std::size_t block, std::size_t segment) const = 0;
  /// Passes the averaged gradients of the parts of this rank to `visit`: parameter by parameter, each from its start;
  /// piece by piece if they are averaged during the visit, else in large parts, which makes updates faster. Call it
  /// after finish_gradients. Not collective.
  /// @param is_last  whether this is the last visit in this step
  virtual void visit_gradients(const std::function<void(const GradientPiece&)>& visit, bool is_last) = 0;
  /// GPUs only: the parameters and gradients as complete tensors, used by updates instead of visit_gradients. This rank
  /// then owns every parameter completely. On the CPU: null.
  virtual TensorParameters* as_tensors() noexcept { return nullptr; }
  /// Makes all gradients undefined.
  virtual void drop_gradients() = 0;

  /// The only function that writes parameters: `body` writes the parts of this rank, and no rank reads before all have
  /// written. Collective over the ranks that share the parameters.
  virtual void write(const std::function<void()>& body) = 0;
  /// Sums element by element over the ranks that together own all parts. Collective over them.
  virtual void sum_over_owners(std::span<double> values) const = 0;
};

/// FlatParameters may offer this if their `write` waits for other ranks.
class LoneWriter {
 public:
  virtual ~LoneWriter() = default;
  /// Like FlatParameters::write, but without waiting: restores the parts of this rank after an exception. Not
  /// collective.
  virtual void write_alone(const std::function<void()>& body) = 0;
};

}  // namespace lockstep::optim
