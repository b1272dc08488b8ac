// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::optim {

/// Elements of a parameter that are summed together. Parameters are divided among ranks, and sums over gradients are
/// formed, in whole pieces that begin at a parameter's first element, so that no result depends on who owns what.
inline constexpr std::int64_t kPieceElements = 4096;

/// One parameter inside a flat block. Begins on 64 bytes; what lies between two segments is padding. A block may be but
/// this rank's slice of a longer one: then only elements [own_begin, own_end) of a segment lie inside of it.
struct Segment {
  std::string name;  ///< dotted name in the model, such as "conv1.weight"
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< in memory without gaps, in elements; empty = the last dimension lies closest
  std::int64_t offset = 0;            ///< elements from the start of the block; negative where the slice begins later
  std::int64_t count = 0;             ///< elements
  std::int64_t own_begin = 0;         ///< this rank updates elements
  std::int64_t own_end = 0;  ///<   [own_begin, own_end) of the segment only; own_begin is a multiple of a piece
};

/// A flat buffer of parameters of one dtype.
struct Block {
  DType dtype = DType::float32;
  std::byte* parameters = nullptr;  ///< on a GPU where FlatParameters::as_tensors
  std::int64_t count = 0;           ///< elements, padding included
  std::vector<Segment> segments;    ///< by ascending offset

  bool is_half() const noexcept { return dtype == DType::float16 || dtype == DType::bfloat16; }
};

/// Some of one parameter's averaged gradient: of one piece of it, or of several together.
struct GradientPiece {
  std::size_t block = 0;
  std::size_t segment = 0;
  std::int64_t begin = 0;  ///< element of the segment
  std::int64_t count = 0;
  const std::byte* values = nullptr;  ///< valid during the call only
};

/// Calls visit(GradientPiece) for parts of `given` of at most `longest` elements.
/// @param element_bytes  of one of its values
template <class Visit>
void for_each_part(const GradientPiece& given, std::int64_t longest, std::size_t element_bytes, const Visit& visit) {
  for (std::int64_t at = 0; at < given.count; at += longest) {
    GradientPiece part = given;
    part.begin += at;
    part.count = std::min(longest, given.count - at);
    part.values += static_cast<std::size_t>(at) * element_bytes;
    visit(part);
  }
}

class TensorParameters;

/// How optimizers see parameters; parallel::ParameterStore is the implementation.
class FlatParameters {
 public:
  virtual ~FlatParameters() = default;

  virtual std::span<const Block> blocks() const = 0;

  /// Zeroed memory for one value per element of a block, laid out like it. Those who share the parameters share this,
  /// and each writes its own parts. Collective over them.
  virtual std::shared_ptr<std::byte> allocate_state(std::size_t block) = 0;

  /// Zeroed memory for what states there are beside those. Those who share the parameters share this. Collective over
  /// them.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  /// From now on every parameter has one owner, who has all of it.
  /// @throws ConfigError  parameters are cut
  virtual void own_whole_parameters() = 0;

  /// Returns once all ranks have brought the gradients of this step. Collective where several ranks train together.
  virtual void finish_gradients() {}
  /// Whether any rank had a gradient for this parameter. One that had none is left alone: none is not zero.
  virtual bool has_gradient(std::size_t block, std::size_t segment) const = 0;
  /// Hands over the averaged gradients of this rank's own parts: one parameter after another, each from its beginning,
  /// a piece at a time where they are only now being averaged, else many together, which updates are faster by. After
  /// finish_gradients. Not collective.
  /// @param is_last  no further visit follows in this step
  virtual void visit_gradients(const std::function<void(const GradientPiece&)>& visit, bool is_last) = 0;
  /// Where blocks and states lie on a GPU: what updates work on instead of visit_gradients, as whole tensors. This rank
  /// then owns every parameter whole, and shares none. Else null.
  virtual TensorParameters* as_tensors() noexcept { return nullptr; }
  /// Makes all gradients undefined.
  virtual void drop_gradients() = 0;

  /// The only way parameters are written: `body` writes this rank's own parts, and nobody reads before all have
  /// written. Collective over the ranks that share the parameters.
  virtual void write(const std::function<void()>& body) = 0;
  /// Like write, but waits for nobody: to leave own parts in order after an exception that others may not know of. Not
  /// collective.
  virtual void write_alone(const std::function<void()>& body) { body(); }
  /// Sums element by element over the ranks whose own parts together make the whole. Collective over them.
  virtual void sum_over_owners(std::span<double> values) const = 0;
};

}  // namespace lockstep::optim
